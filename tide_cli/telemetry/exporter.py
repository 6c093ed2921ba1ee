"""TIDE's own metrics, for Prometheus: made from the status and from counts of events whenever they are asked for.

Names and units follow Prometheus' conventions: base units, counters end in _total, parts of a whole in _ratio. What is
not known has no sample. Load, latencies and tokens are SGLang's to tell: its own page is named in
tide_engine_metrics_info.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tide_cli import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Status = Mapping[str, Any]
_Samples = Sequence[tuple[tuple[str, ...], float | None]]  # label values, value; None is left out


class Tally:
    """Events since the supervisor's start, counted by the one thread that writes them."""

    def __init__(self) -> None:
        self.swaps = self.rollbacks = self.drifts = 0
        self.gates = {"passed": 0, "refused": 0}
        self.cycles = {"published": 0, "nothing": 0}
        self.cycle_seconds = 0.0

    def count(self, kind: str, data: Mapping[str, Any]) -> None:
        """One row of the events table."""
        match kind:
            case "swap":
                self.swaps += 1
            case "rollback":
                self.rollbacks += 1
            case "drift":
                self.drifts += 1
            case "gate":
                self.gates["passed" if data.get("passed") else "refused"] += 1
            case "cycle_end":
                self.cycles["nothing" if data.get("published") is None else "published"] += 1
                self.cycle_seconds += data.get("seconds") or 0.0


class Exporter:
    """status: the latest one, a function; states: every state that a child can be in."""

    def __init__(self, status: Callable[[], Status], tally: Tally, states: Sequence[str]) -> None:
        self._status, self._tally, self._states = status, tally, states
        self.registry = CollectorRegistry()
        self.registry.register(self)  # type: ignore[arg-type]  # it is one by its methods
        ProcessCollector(namespace="tide_supervisor", registry=self.registry)

    def page(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the status."""
        return []

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield from _appliance(status, self._states)
        yield from _speculation(status)
        yield from _drafts(status, self._tally)
        yield from _spool(status["spool"])
        yield from _training(status, self._tally)
        yield from _devices(status["devices"])


def _appliance(status: Status, states: Sequence[str]) -> Iterator[Metric]:
    engine_page = f"{str(status['address']).removesuffix('/v1')}/metrics"
    children = status["children"]
    yield _gauge("tide_info", "TIDE's version and what it serves", 1, version=__version__, target=status["target"])
    yield _gauge("tide_engine_metrics_info", "where SGLang's own metrics are", 1, url=engine_page)
    yield _gauge("tide_start_time_seconds", "unix time of the supervisor's start", status["started"])
    yield _gauge("tide_ready", "1 while the engine is READY", status["state"] == "READY")
    yield _gauges(
        "tide_child_state",
        "1 for the state that a process is in",
        ("child", "state"),
        [((name, state), child["state"] == state) for name, child in children.items() for state in states],
    )
    yield _counters(
        "tide_child_starts",
        "starts of a process",
        ("child",),
        [((name,), child["starts"]) for name, child in children.items()],
    )
    yield _gauges(
        "tide_child_failures",
        "failures of a process in a row",
        ("child",),
        [((name,), child["failures"]) for name, child in children.items()],
    )


def _speculation(status: Status) -> Iterator[Metric]:
    live, load = status["live"], status["load"]
    yield _gauge(
        "tide_acceptance_length", "completion tokens for each verify step, last 5 seconds", load["acceptance_length"]
    )
    yield _gauge(
        "tide_served_acceptance_length",
        "the same of the served draft, over finished requests that came in since it is served",
        live["acceptance_length"],
    )
    yield _gauges(
        "tide_acceptance_ratio",
        "accepted part of the proposals at a position, of those judged",
        ("position",),
        [((str(place),), rate) for place, rate in enumerate(live["by_position"], start=1)],
    )
    yield _gauge("tide_draft_steps", "tokens proposed in a round, 0 is plain decoding", live["draft_steps"])
    yield _gauge("tide_speedup_ratio", "promised speed against plain decoding", status["speedup"])
    yield _gauge(
        "tide_plain_tokens_per_second", "what plain decoding would give at this batch size", status["plain_tok_s"]
    )


def _drafts(status: Status, tally: Tally) -> Iterator[Metric]:
    gate = status["gate"] or {}
    yield _gauge("tide_served_draft_version", "number of the served draft", status["drafts"]["served"])
    yield _gauge("tide_latest_draft_version", "number of the newest draft", status["drafts"]["latest"])
    yield _gauge("tide_draft_on_trial", "1 while the served draft may be taken back", status["live"]["on_trial"])
    yield _counter("tide_swaps", "drafts put into the running engine", tally.swaps)
    yield _counter("tide_rollbacks", "drafts taken back", tally.rollbacks)
    yield _counter("tide_drifts", "times that the traffic was found to have changed", tally.drifts)
    yield _counters(
        "tide_gates",
        "verdicts of the gate",
        ("result",),
        [((result,), number) for result, number in tally.gates.items()],
    )
    yield _gauge("tide_gate_gain", "acceptance length gained at the last gate", gate.get("gain"))
    yield _gauge("tide_gate_lower_bound", "lower bound of that gain", gate.get("lower_bound"))


def _spool(spool: Mapping[str, Any]) -> Iterator[Metric]:
    dropped = {name.removeprefix("dropped_"): n for name, n in spool.items() if name.startswith("dropped_")}
    yield _counter("tide_spool_samples", "requests stored since the spool was made", spool.get("samples"))
    yield _counter("tide_spool_tokens", "tokens stored since the spool was made", spool.get("tokens"))
    yield _counters(
        "tide_spool_dropped_requests",
        "requests that were not stored",
        ("cause",),
        [((cause,), number) for cause, number in dropped.items()],
    )
    yield _gauge("tide_spool_fill_ratio", "part of the spool that is taken", spool.get("fill"))


def _training(status: Status, tally: Tally) -> Iterator[Metric]:
    cycle, trigger = status["cycle"], status["trigger"]
    yield _counters(
        "tide_cycles",
        "training cycles that have ended, by what came of them",
        ("result",),
        [((result,), number) for result, number in tally.cycles.items()],
    )
    yield _counter("tide_cycle_seconds", "time spent in them, the gate included", tally.cycle_seconds)
    yield _gauge("tide_training_enabled", "1 where the appliance trains", status["training"]["enabled"])
    yield _gauge("tide_training_paused", "1 while no cycle may begin", status["training"]["paused"])
    yield _gauge("tide_training_running", "1 during a cycle", status["training"]["running"])
    yield _gauge("tide_trigger_tokens", "tokens stored since the last cycle began", trigger["tokens"])
    yield _gauge("tide_trigger_needed_tokens", "those at which the next one begins", trigger["needed"])
    yield _gauge("tide_cycle_elapsed_seconds", "training time of the running cycle", cycle["seconds"])
    yield _gauge("tide_cycle_remaining_seconds", "training time that it still has", cycle["remaining_s"])
    yield _gauge("tide_training_loss", "as last reported", cycle["loss"])
    yield _gauge("tide_training_tokens_per_second", "as last reported", cycle["tokens_s"])


def _devices(devices: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    for name, help, field in (
        ("tide_device_use_ratio", "how busy a device is", "use"),
        ("tide_device_memory_used_bytes", "memory of the whole device that is taken", "memory_used"),
        ("tide_device_memory_bytes", "memory of the whole device", "memory_total"),
        ("tide_device_power_watts", "what it draws", "power"),
    ):
        rows = [((row["role"], _device(row)), row[field]) for row in devices]
        yield _gauges(name, help, ("role", "device"), rows)


def _device(row: Mapping[str, Any]) -> str:
    return f"cores {row['cores']}" if row["gpu"] is None else f"gpu {row['gpu']}"


def _gauge(name: str, help: str, value: float | None, **labels: str) -> Metric:
    return _gauges(name, help, tuple(labels), [(tuple(labels.values()), value)])


def _counter(name: str, help: str, value: float | None) -> Metric:
    return _counters(name, help, (), [((), value)])


def _gauges(name: str, help: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(GaugeMetricFamily(name, help, labels=labels), samples)


def _counters(name: str, help: str, labels: Sequence[str], samples: _Samples) -> Metric:
    return _filled(CounterMetricFamily(name, help, labels=labels), samples)


def _filled(family: Any, samples: _Samples) -> Metric:
    for values, value in samples:
        if value is not None:
            family.add_metric(values, float(value))
    return family
