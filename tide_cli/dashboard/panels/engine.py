"""What the engine does for its clients now."""

from __future__ import annotations

from rich.text import Text

from tide_cli.dashboard.plot import Axes, nice_ceiling, plot
from tide_cli.dashboard.view import LONGEST_SILENCE, STATE_STYLES, View, bar, cleaned, fitted, labelled
from tide_cli.dashboard.words import count, duration, milliseconds, percent, rate

SPAN = 900.0  # seconds that the plots look back
_LEAST_PLOT = 3  # rows
_BAR = 16


def lines(view: View, width: int, height: int) -> list[Text]:
    found = [
        labelled("state", _state(view)),
        labelled("tokens/s", Text.assemble((rate(view.get("load", "output_tok_s")), "bold"), " out   "), _input(view)),
        labelled("requests", f"{_count(view, 'running')} running, {_count(view, 'queued')} queued"),
        labelled("first", _latency(view, "ttft_ms")),
        labelled("next", _latency(view, "itl_ms")),
        labelled("KV cache", bar(view.get("load", "kv_use"), min(_BAR, max(4, width - 18))), _percent(view)),
    ]
    room = height - len(found) - 1
    if room >= _LEAST_PLOT:
        series = view.series("output_tok_s")
        high = nice_ceiling(max((value for _, value in series), default=1.0))
        axes = Axes(view.now - SPAN, view.now, 0.0, high, lambda value: f"{value:g}", "15 min ago")
        drawn = plot(series, axes, width, room, ascii=view.ascii) if series else []
        found += [Text("output tokens/s", "dim"), *drawn] if drawn else []
    return fitted(found, width, height, view.ascii)


def state_words(name: str, child: dict[str, object]) -> Text:
    """A child's state, how long it has lasted, and the phase of a start."""
    state, seconds, phase = str(child.get("state")), child.get("seconds"), child.get("phase")
    text = Text.assemble((state, STATE_STYLES.get(state, "cyan")))
    if isinstance(seconds, int | float):
        text.append(f" {duration(seconds)}", "dim")
    if isinstance(phase, dict):
        text.append(f", {phase['words']} {duration(phase['seconds'])}", "dim")
    return text


def _state(view: View) -> Text:
    engine = view.get("children", "engine")
    if engine is None:
        return Text("-")
    before = _preparing(view) if engine["state"] == "WAITING" else None
    text = before or state_words("engine", engine)
    if engine.get("starts", 0) > 1:
        text.append(f", start {engine['starts']}", "yellow")
    if view.engine_silence > LONGEST_SILENCE:
        text.append(f", no answer for {duration(view.engine_silence)}", "bold yellow")
    if engine.get("reason") and engine["state"] != "READY":
        text.append(f": {cleaned(engine['reason'])}", "yellow")
    return text


def _preparing(view: View) -> Text | None:
    """The step that the engine waits for."""
    for name, child in view.get("children").items():
        if name not in ("engine", "trainer") and child["state"] not in ("DONE", "WAITING"):
            return Text.assemble(f"preparing the {name} ", state_words(name, child))
    return None


def _input(view: View) -> str:
    return f"{rate(view.get('load', 'input_tok_s'))} in"


def _count(view: View, name: str) -> str:
    return count(view.get("load", name))


def _latency(view: View, name: str) -> str:
    return f"p50 {milliseconds(view.get('load', name, 'p50')):<8}  p95 {milliseconds(view.get('load', name, 'p95'))}"


def _percent(view: View) -> str:
    use = view.get("load", "kv_use")
    return "" if use is None else f" {percent(use)}"
