"""Curves, the 90 % point and ratios of an adaptation experiment, on passes whose answers are known."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tide_cli.bench.adapt_figures import (
    NO_POOL,
    OWN,
    PLAIN,
    POLICY,
    STATIC,
    TIDE,
    Measured,
    Pass,
    domain_figures,
    identical,
    ninety,
    phase_figures,
    series,
)
from tide_cli.bench.adapt_page import adapt_page
from tide_cli.bench.adapt_report import adapt_figures
from tide_cli.bench.adapt_table import as_tables, reading

TOKENS = 120
ENVIRONMENT = {
    "time": 0, "tide": "0", "python": "3", "packages": {}, "system": "x", "cpu": "a processor", "cores": 2,
    "memory": 2**30, "gpus": [], "load": [0, 0, 0],
}  # fmt: skip


def passes(lengths: dict[str, list[list[float]]]) -> list[Pass]:
    """lengths: arm -> phase -> acceptance length of each piece. A piece has 120 tokens and takes 1 s a verify step, so
    that the acceptance length is also the rate; arms take turns on one clock."""
    made, clock = [], 1000.0
    arms = list(lengths)
    for phase in range(len(lengths[arms[0]])):
        for piece in range(len(lengths[arms[0]][phase])):
            for arm in arms:
                steps = round(TOKENS / lengths[arm][phase][piece])
                made.append(Pass(phase, piece, arm, clock, float(steps), 2, 0, TOKENS, steps, phase, False, ("x", arm)))
                clock += steps
    return made


RISING = [1.5, 1.5, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_a_point_of_the_series_is_a_piece_that_every_arm_answered() -> None:
    of = passes({STATIC: [[1.5, 1.5]], TIDE: [[1.5, 2.0]]})
    points = series(of[:-1], ["code"], [STATIC, TIDE])  # the last piece lacks TIDE's answers
    assert len(points) == 1
    points = series(of, ["code"], [STATIC, TIDE])
    assert [point["tokens"] for point in points] == [120, 240]
    assert [point["seconds"] for point in points] == [80, 140]  # of TIDE's arm alone
    assert [point["wall_s"] for point in points] == [160, 300]
    assert points[1]["arms"][TIDE] == {"al": 2.0, "tok_s": 2.0, "draft": 0}
    assert points[1]["arms"][STATIC]["al"] == 1.5


def test_ninety_per_cent_of_the_gain() -> None:
    of = passes({STATIC: [[1.5] * 9], TIDE: [RISING]})
    static, own = of[::2], of[1::2]
    # the window of three is full of the better draft with the sixth piece: 2.0 from then on, less before
    assert ninety(own, static, 0.5) == {"tokens": 6 * 120, "seconds": 3 * 80 + 3 * 60, "wall_s": 6 * 80 + 3 * 80 + 180}
    assert ninety(own, static, 0.6) is None  # 90 % of it is never reached
    assert ninety(own, static, 0.0) is None
    assert ninety(static, own, -0.5) is None


def test_hard_prompts_cancel() -> None:
    """The acceptance length of both arms jumps with the prompts; the gain does not."""
    of = passes({STATIC: [[1.2, 2.0, 1.5]], TIDE: [[1.2, 2.0, 1.5]]})
    assert ninety(of[1::2], of[::2], 0.3) is None


def test_phases_and_recovery() -> None:
    lengths = {
        STATIC: [[1.5] * 9, [1.2] * 6, [1.5] * 9],
        TIDE: [RISING, [1.2] * 6, [2.0] * 9],
        NO_POOL: [RISING, [1.2] * 6, [1.5] * 9],
    }
    names, arms = ["a", "b", "a"], [STATIC, TIDE, NO_POOL]
    first, second, third = phase_figures(passes(lengths), names, arms)
    assert (first["name"], first["visit"], first["pieces"], first["tokens"]) == ("a", 0, 9, 9 * 120)
    assert first["arms"][TIDE]["late_al"] == 2.0
    assert first["arms"][STATIC]["al"] == 1.5
    assert first["live"][TIDE]["gain"] == 0.5
    assert first["live"][TIDE]["late_ratio"] == pytest.approx(2.0 / 1.5)
    assert first["live"][TIDE]["recovered"] is None
    assert second["live"][TIDE]["to_90"] is None  # nothing was gained
    assert (third["name"], third["visit"]) == ("a", 1)
    assert third["live"][TIDE]["recovered"]["tokens"] == 120  # at once
    assert third["live"][NO_POOL]["recovered"] is None


def test_only_phases_that_have_begun_are_told() -> None:
    of = passes({STATIC: [[1.5]], TIDE: [[1.5]]})
    assert [phase["name"] for phase in phase_figures(of, ["a", "b"], [STATIC, TIDE])] == ["a"]
    assert phase_figures([], ["a", "b"], [STATIC, TIDE]) == []


def test_answers_that_are_the_same_text() -> None:
    of = passes({STATIC: [[1.5, 1.5]], TIDE: [[1.5, 1.5]]})
    assert identical(of, [STATIC, TIDE]) == {"requests": 4, "same": 2}  # the second text names the arm
    broken = Pass(**{**vars(of[0]), "errors": 1})
    assert identical([broken, *of[1:]], [STATIC, TIDE]) == {"requests": 2, "same": 1}


def measured(domain: str, contestant: str, rates: list[float], concurrency: int = 4, al: float = 2.0) -> list[Measured]:
    steps = 0 if contestant == PLAIN else round(TOKENS / al)
    return [
        Measured(domain, concurrency, number, contestant, 0, TOKENS / rate, 8, 0, TOKENS, steps)
        for number, rate in enumerate(rates)
    ]


def test_ratios_are_medians_over_pairs() -> None:
    of = [
        *measured("code", STATIC, [10, 20, 40], al=1.5),
        *measured("code", TIDE, [15, 20, 80]),  # 1.5, 1, 2
        *measured("code", PLAIN, [10, 10, 10]),
        *measured("code", STATIC, [5], concurrency=1, al=1.5),
        *measured("code", TIDE, [6], concurrency=1),
        *measured("code", PLAIN, [5], concurrency=1),
        *measured("sql", STATIC, [10]),
    ]
    domains = domain_figures(of)
    assert list(domains) == ["code"]  # the other one is only half measured
    code = domains["code"]
    assert (code["static_tok_s"], code["tide_tok_s"], code["ratio"], code["rounds"]) == (20, 20, 1.5, 3)
    assert code["ratio_spread"] == [1.25, 1.75]
    assert (code["static_al"], code["tide_al"], code["plain_al"]) == (1.5, 2.0, None)
    assert code["tide_to_plain"] == 2.0
    assert code["at"]["1"]["ratio"] == pytest.approx(1.2)
    assert code["at"]["4"]["ratio"] == 1.5


def test_the_policy_beside_the_others() -> None:
    of = [
        *measured("code", STATIC, [10, 20, 40], al=1.5),
        *measured("code", TIDE, [15, 20, 80]),
        *measured("code", POLICY, [15, 30, 80]),
        *measured("code", PLAIN, [10, 10, 10]),
    ]
    code = domain_figures(of)["code"]
    assert (code["policy_tok_s"], code["policy_al"]) == (30, 2.0)
    assert (code["policy_to_plain"], code["policy_ratio"], code["policy_to_tide"]) == (3.0, 1.5, 1.0)
    assert code["policy_to_plain_spread"] == [2.25, 5.5]


def test_a_round_that_was_cut_short_does_not_count() -> None:
    of = [*measured("code", STATIC, [10, 10]), *measured("code", TIDE, [12])]
    assert domain_figures(of)["code"]["rounds"] == 1


def test_the_page_shows_each_draft_against_plain_decoding() -> None:
    pytest.importorskip("matplotlib")
    arms = [STATIC, TIDE, POLICY]
    made = passes({STATIC: [[1.5] * 3], TIDE: [[1.5, 2.0, 2.0]], POLICY: [[1.5, 2.0, 2.0]]})
    entries = {
        "pass": [{**vars(one), "texts": list(one.texts)} for one in made],
        "measured": [vars(one) for name in (*arms, OWN, PLAIN) for one in measured("code", name, [10, 12])],
    }
    report = adapt_figures({"settings": {}}, ["code"], arms, entries, [])
    text = adapt_page({"adapt": report, "environment": ENVIRONMENT})
    figure = next(part for part in text.split("<figure>") if "Against decoding without a draft" in part)
    assert "output tok/s, times plain" in figure
    assert all(f">{name}<" in figure for name in (STATIC, OWN, TIDE, POLICY))
    curves = next(part for part in text.split("<figure>") if "Output tok/s of each piece" in part)
    assert f">{POLICY}<" in curves
    table = Console(width=200, file=io.StringIO())
    table.print(as_tables(report))
    assert "policy / plain" in table.file.getvalue()
    without = adapt_figures(
        {"settings": {}},
        ["code"],
        arms[:2],
        {"measured": [m for m in entries["measured"] if m["contestant"] != POLICY]},
        [],
    )
    table = Console(width=200, file=io.StringIO())
    table.print(as_tables(without))
    assert "policy" not in table.file.getvalue()


def test_the_report_at_every_stage() -> None:
    """From nothing to everything: each table and each sentence can be made."""
    made = passes({STATIC: [[1.5] * 3], TIDE: [[1.5, 2.0, 2.0]]})
    entries: dict[str, list] = {}
    events = [
        {"time": 990.0, "kind": "swap", "text": "v0001 is served"},  # before the first piece
        {"time": made[3].begun + 1, "kind": "swap", "text": "v0002 is served"},
        {"time": made[3].begun + 1, "kind": "started", "text": "engine started"},
        {"time": made[-1].begun + 999, "kind": "use", "text": "v0001 asked for by the user"},  # measuring begins
        {"time": made[-1].begun + 999, "kind": "swap", "text": "v0001 is served"},
    ]
    stages = (
        ("static", [{"version": 1, "captured_tokens": 9, "last_gate": None}]),
        ("pass", [{**vars(one), "texts": list(one.texts)} for one in made]),
        ("final", [{"versions": {TIDE: 2}}]),
        ("measured", [vars(one) for name in (STATIC, OWN, TIDE) for one in measured("code", name, [10, 12])]),
        ("finished", [{}]),
    )
    for kind, found in (("nothing", []), *stages):
        entries[kind] = found
        report = adapt_figures({"settings": {"target": "tiny"}}, ["code"], [STATIC, TIDE], entries, events)
        as_tables(report)
        text = adapt_page({"adapt": report, "environment": ENVIRONMENT})
        assert text.startswith("<!doctype html>")
        assert "None" not in text.partition("Conditions")[0]
        assert report["finished"] == ("finished" in entries)
        assert list(reading(report))
    assert [(event["tokens"], event["text"]) for event in report["events"]] == [(120, "v0002 is served")]
    assert report["first_domain"] == {
        "name": "code", "static_al": 2.0, "own_al": 2.0, "tide_al": 2.0, "own_ratio": 1.0, "ratio": 1.0
    }  # fmt: skip
    assert report["final"] == {TIDE: 2}
