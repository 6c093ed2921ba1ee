"""`tide bench swap`: whether anybody notices that the draft is replaced under running requests.

As many streams as there are requests run at once, each round once with a swap every so often, between two drafts that
differ, and once without. Swaps must fail no request and change no text. A swap's cost is the longest pause between two
arrivals that it fell into, less the longest that as much time without a swap usually has: pauses scatter, and of the
several that a swap lasts for the longest is longer than the usual one also where it does nothing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tide_cli.bench.arms import send, warm_engines
from tide_cli.bench.client import Answer
from tide_cli.bench.engines import Appliance
from tide_cli.bench.figures import percentile, reasons
from tide_cli.bench.progress import PassTicks, Progress
from tide_cli.bench.requests import Request
from tide_cli.bench.rounds import Spread, in_turns
from tide_cli.bench.scratch import scratch_folder
from tide_cli.drafts.manifest import CONFIG_FILE, WEIGHTS_FILE
from tide_cli.drafts.store import DraftStore
from tide_cli.errors import TideError
from tide_cli.printable import many

SWAPS, QUIET = "swaps", "quiet"
_WINDOWS = 1000  # at most, of the quiet pass, that a swap is compared with: each looks at all pauses
_NOISE = 1e-3  # relative; enough to be another draft, too little to be a worse one


@dataclass(frozen=True)
class SwapPass:
    """swaps: (begin, end) of each, seconds of time.monotonic(); failures: swaps that were refused, in words."""

    answers: Sequence[Answer]
    swaps: Sequence[tuple[float, float]] = ()
    failures: Sequence[str] = ()


@dataclass(frozen=True)
class SwapBench:
    """every: seconds between two swaps. settings: of the engine."""

    requests: Sequence[Request]
    rounds: int
    every: float
    settings: Mapping[str, Any]

    def run(self, progress: Progress) -> dict[str, Any]:
        """`swap_figures`. Nothing is left behind. Raises TideError or UsageError."""
        rounds: list[dict[str, SwapPass]] = []
        streams = len(self.requests)
        common = {"speculation": "on", "capture": False, **self.settings}
        with warm_engines({"engine": {}}, common, streams, progress) as appliances:
            appliance = appliances["engine"]
            versions = _two_drafts(DraftStore(appliance.settings.paths.drafts))
            passes = PassTicks(progress, 2 * self.rounds)

            def answers() -> list[Answer]:
                return send(appliance, self.requests, streams, captured=False, on_answer=passes.begin(streams))

            def turn(swapping: bool) -> SwapPass:
                appliance.use_draft(versions[0])
                appliance.flush_cache()
                if not swapping:
                    return SwapPass(answers())
                with _swapping(appliance, versions, self.every) as (swaps, failures):
                    return SwapPass(answers(), swaps, failures)

            contestants = {QUIET: lambda: turn(False), SWAPS: lambda: turn(True)}
            for results in in_turns(contestants, seconds=0, least=self.rounds, clock=time.monotonic):
                rounds.append(results)
                words = f"{many(len(results[SWAPS].swaps), 'swap')} under {many(streams, 'stream')}"
                progress.say(f"  round {len(rounds)} of {self.rounds}: {words}")
        return swap_figures(rounds) | {"streams": streams}


def swap_figures(rounds: Sequence[Mapping[str, SwapPass]]) -> dict[str, Any]:
    """{failed_requests: in all passes, reasons; identical: whether every text is the one without swaps, changed_texts:
    how many of the whole answers have another one; added_gap_ms: median over the swaps, and added_gap_max_ms;
    usual_gap_ms: median pause without swaps, usual_gap_p99_ms; spread; swaps: that fell into a stream, refused_swaps,
    refusals: why, requests, rounds}.

    Figures of pauses are None where no swap fell into a stream.
    """
    added: list[float] = []
    usual_gaps: list[float] = []
    for results in rounds:
        quiet = _pauses(results[QUIET].answers)
        if not quiet:
            continue
        usual_gaps += [seconds for _, seconds in quiet]
        pauses = _pauses(results[SWAPS].answers)
        for begin, end in results[SWAPS].swaps:
            if inside := _inside(pauses, begin, end):
                added.append(max(inside) - _usual_longest(quiet, end - begin))
    passes = [one for results in rounds for one in results.values()]
    pairs = [
        (one, other)
        for results in rounds
        for one, other in zip(results[SWAPS].answers, results[QUIET].answers, strict=True)
    ]
    spread = Spread.of(added) if added else None
    return {
        "failed_requests": sum(answer.error is not None for one in passes for answer in one.answers),
        "reasons": reasons(answer for one in passes for answer in one.answers),
        "identical": all(one.text == other.text for one, other in pairs),
        "changed_texts": sum(one.text != other.text for one, other in pairs if not (one.error or other.error)),
        "added_gap_ms": spread.median * 1e3 if spread else None,
        "added_gap_max_ms": max(added) * 1e3 if added else None,
        "usual_gap_ms": median(usual_gaps) * 1e3 if usual_gaps else None,
        "usual_gap_p99_ms": (percentile(usual_gaps, 99) or 0.0) * 1e3 if usual_gaps else None,
        "spread": {"added_gap_ms": [spread.low * 1e3, spread.high * 1e3] if spread else None},
        "swaps": len(added),
        "refused_swaps": sum(len(one.failures) for one in passes),
        "refusals": sorted({failure for one in passes for failure in one.failures})[:3],
        "requests": len(pairs),
        "rounds": len(rounds),
    }


def _pauses(answers: Sequence[Answer]) -> list[tuple[float, float]]:
    """(moment of the later arrival, seconds since the one before) of every stream, once all of them have begun: what
    comes before waits for the prompts of the others."""
    begun = max((answer.first or 0.0 for answer in answers), default=0.0)
    found = []
    for answer in answers:
        moments = sorted({moment for moment in answer.token_times if moment >= begun})
        found += [(later, later - earlier) for earlier, later in pairwise(moments)]
    return found


def _inside(pauses: Sequence[tuple[float, float]], begin: float, end: float) -> list[float]:
    """Those that were not over at `begin` and had begun at `end`, in seconds."""
    return [seconds for moment, seconds in pauses if moment - seconds <= end and begin <= moment]


def _usual_longest(pauses: Sequence[tuple[float, float]], lasting: float) -> float:
    """The longest pause in `lasting` seconds, median over windows from the middle of each pause on that end before the
    last arrival; of all pauses where no window does."""
    last = max(moment for moment, _ in pauses)
    begins = [moment - seconds / 2 for moment, seconds in pauses[:: 1 + len(pauses) // _WINDOWS]]
    found = [max(_inside(pauses, begin, begin + lasting)) for begin in begins if begin + lasting <= last]
    return median(found) if found else max(seconds for _, seconds in pauses)


@contextmanager
def _swapping(
    appliance: Appliance, versions: Sequence[int], every: float
) -> Iterator[tuple[list[tuple[float, float]], list[str]]]:
    """Meanwhile the draft is swapped to and fro by another thread; yields what `SwapPass` keeps of it."""
    swaps: list[tuple[float, float]] = []
    failures: list[str] = []
    stopped = threading.Event()

    def swap() -> None:
        place = 0
        while not stopped.wait(every):
            place += 1
            begun = time.monotonic()
            try:
                appliance.use_draft(versions[place % len(versions)])
                swaps.append((begun, time.monotonic()))
            except TideError as error:
                failures.append(error.lines()[0])

    thread = threading.Thread(target=swap, name="swaps", daemon=True)
    thread.start()
    try:
        yield swaps, failures
    finally:
        stopped.set()
        thread.join()


def _two_drafts(store: DraftStore) -> tuple[int, int]:
    """The newest version, and another one made of it with a little noise on its weights."""
    import torch
    from safetensors.torch import save_file

    from tide_cli.drafts.tensors import read_draft

    first = store.versions()[-1]
    manifest, tensors = store.manifest(first), read_draft(store.path(first))
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            tensors[name] = tensor * (1 + _NOISE * torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
    with scratch_folder() as folder:
        made = folder / "draft"  # the mark of the folder is no part of it
        made.mkdir()
        save_file(tensors, made / WEIGHTS_FILE, metadata={"format": "pt"})
        shutil.copyfile(store.path(first) / CONFIG_FILE, made / CONFIG_FILE)
        second = store.publish(
            made,
            parent=first,
            target=manifest.target,
            target_revision=manifest.target_revision,
            vocab_map_hash=manifest.vocab_map_hash,
            samples=0,
            tokens=0,
            gate=None,
        )
    return first, second
