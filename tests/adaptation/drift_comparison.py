"""How soon a drift is noticed, and how often one is where there is none: `python tests/adaptation/drift_comparison.py`.

`--history FILE` looks at recorded traffic instead: FILE is an appliance's spool/index.db (its stored requests) or its
history.db (seconds; ten seconds and minutes further back). What was a drift there nobody knows, so it is told where
each detector sees one.

With river (https://riverml.xyz, no dependency of TIDE's) on PYTHONPATH its ADWIN is compared as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
from simulated import STEPS, request

from tide_cli.adaptation.drift import DriftRules, DriftState, observe
from tide_cli.telemetry.history import read_history
from tide_cli.telemetry.rows import STEPS as SPANS
from tide_cli.telemetry.rows import Row
from tide_cli.telemetry.totals import served_requests

Request = tuple[int, int]  # completion tokens, verify steps
Detector = Callable[[int, int], bool]  # told a request; whether acceptance has fallen

# acceptance lengths of a draft adapted to code, on code, SQL and two kinds of chat
LEVELS = (1.77, 1.53, 1.37, 1.37)
CHANGES = ((1.77, 1.37), (1.77, 1.44), (1.77, 1.53), (1.53, 1.37), (1.44, 1.37))
BEFORE, AFTER = 500, 1000  # requests
LONGER = (1, 3, 6)  # answers of 110, 330 and 660 tokens


def averages(rules: DriftRules) -> Detector:
    """TIDE's short and long average."""
    state = DriftState()

    def add(tokens: int, steps: int) -> bool:
        nonlocal state
        state, decision = observe(state, rules, tokens=tokens, steps=steps)
        return decision.drifted

    return add


def adwin(delta: float, clock: int) -> Detector:
    """river's ADWIN on each request's acceptance length; of the changes it reports the falls count."""
    from river.drift import ADWIN

    detector = ADWIN(delta=delta, clock=clock)

    def add(tokens: int, steps: int) -> bool:
        before = detector.estimation
        detector.update((tokens / steps - 1) / STEPS)
        return detector.drift_detected and detector.estimation < before

    return add


def mixed(chance: np.random.Generator, count: int, run: float) -> list[Request]:
    """Steady traffic of all LEVELS, each kept for `run` requests on average."""
    requests, level = [], LEVELS[0]
    for _ in range(count):
        if chance.random() < 1 / run:
            level = LEVELS[int(chance.integers(len(LEVELS)))]
        requests.append(request(chance, level))
    return requests


def falling(
    chance: np.random.Generator, before: float, after: float, over: int = 0, longer: float = 1.0
) -> list[Request]:
    """BEFORE requests at one level and AFTER at another, reached at once or in a line over so many requests."""
    lengths = [before] * BEFORE + [
        after + (before - after) * max(0.0, 1 - i / over) if over else after for i in range(AFTER)
    ]
    return [request(chance, length, longer) for length in lengths]


def false_alarms(make: Callable[[], Detector], requests: Sequence[Request]) -> int:
    """Per 10,000 requests of steady traffic."""
    detector = make()
    return round(sum(detector(*one) for one in requests) * 10_000 / len(requests))


def delays(make: Callable[[], Detector], series: Sequence[Sequence[Request]]) -> list[int]:
    """Requests from the change to the first alarm after it, for each series; AFTER where there was none."""
    found = []
    for requests in series:
        detector = make()
        alarms = [at for at, one in enumerate(requests) if detector(*one)]
        found.append(min((at - BEFORE for at in alarms if at >= BEFORE), default=AFTER))
    return found


def detectors() -> dict[str, Callable[[], Detector]]:
    made = {
        f"averages, ε = {epsilon:g}, {short}/{long}": partial(averages, DriftRules(epsilon, short, long, long / 2))
        for short, long in ((1_500, 15_000), (3_000, 30_000))
        for epsilon in (0.05, 0.10, 0.15)
    }
    made["averages, long answers whole"] = partial(averages, DriftRules(most_steps=inf, sureness=0))
    try:
        adwin(0.002, 32)
    except ImportError:
        return made
    return made | {
        f"ADWIN, δ = {delta:g}, clock {clock}": partial(adwin, delta, clock)
        for delta in (0.002, 0.2)
        for clock in (32, 1)
    }


def recorded(file: Path) -> list[list[Request]]:
    """Recorded traffic in order of time, a list for each stretch in which one version was served."""
    seen: list[tuple[int | None, Request]] = []
    if file.name == "index.db":
        seen = [(one.version, (one.tokens, one.steps)) for one in served_requests(file.parent, 0)]
    else:
        rows: list[Row] = []
        for span in SPANS:  # the finest first: the coarser ones reach further back
            oldest = rows[0].time if rows else inf
            rows = [row for row in read_history(file.absolute(), 0, 2**40, span) if row.time + span <= oldest] + rows
        for row in rows:
            if row.observed and row.observed.acceptance_length and row.observed.output:
                steps = row.observed.output / row.observed.acceptance_length
                seen.append((row.version, (round(row.observed.output), max(1, round(steps)))))
    return [[request for _, request in stretch] for _, stretch in groupby(seen, key=lambda one: one[0])]


def alarms(make: Callable[[], Detector], stretches: Sequence[Sequence[Request]]) -> list[int]:
    """At which observations, counted over all stretches, one is raised; each draft begins anew."""
    found, number = [], 0
    for stretch in stretches:
        detector = make()
        for one in stretch:
            number += 1
            if detector(*one):
                found.append(number)
    return found


def tell_recorded(file: Path) -> None:
    stretches = recorded(file)
    print(f"{sum(map(len, stretches))} observations of {len(stretches)} served drafts; alarms at these:")
    for name, make in detectors().items():
        found = alarms(make, stretches)
        print(f"{name:<32}{len(found):>4}   {' '.join(map(str, found))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--history", type=Path, metavar="FILE", help="recorded traffic: an index.db or a history.db")
    if file := parser.parse_args().history:
        tell_recorded(file)
        return
    chance = np.random.default_rng(0)
    steady = {
        "one level": [request(chance, 1.77) for _ in range(10_000)],
        "mixed": mixed(chance, 10_000, 1),
        "runs of 5": mixed(chance, 10_000, 5),
        "runs of 20": mixed(chance, 10_000, 20),
        **{f"2.4, {by}-fold": [request(chance, 2.4, by) for _ in range(10_000)] for by in LONGER},
    }
    changes = {f"{a} to {b}": [falling(chance, a, b) for _ in range(40)] for a, b in CHANGES}
    changes["1.77 to 1.44 over 200"] = [falling(chance, 1.77, 1.44, 200) for _ in range(40)]
    changes |= {f"2.4 to 2.0, {by}-fold": [falling(chance, 2.4, 2.0, 0, by) for _ in range(40)] for by in LONGER}
    print(f"false alarms per 10,000 requests: {', '.join(steady)}")
    print(f"requests until noticed, median (missed within {AFTER}, of 40): {'; '.join(changes)}")
    for name, make in detectors().items():
        alarms = " ".join(f"{false_alarms(make, requests):>4}" for requests in steady.values())
        cells = []
        for series in changes.values():
            found = delays(make, series)
            cells.append(f"{median(found):.0f} ({found.count(AFTER)})")
        print(f"{name:<32}{alarms}   {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
