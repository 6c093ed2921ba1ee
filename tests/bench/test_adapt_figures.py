"""Curves, the 90 % point and ratios of an adaptation experiment, on passes whose answers are known."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tide_cli.bench.adapt_events import told
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
    series,
)
from tide_cli.bench.adapt_page import adapt_page
from tide_cli.bench.adapt_phases import ninety, phase_figures
from tide_cli.bench.adapt_report import adapt_figures
from tide_cli.bench.adapt_table import as_tables, gain, reached, reading
from tide_cli.bench.shift import GENERAL

TOKENS = 120
ENVIRONMENT = {
    "time": 0, "tide": "0", "python": "3", "packages": {}, "system": "x", "cpu": "a processor", "cores": 2,
    "memory": 2**30, "gpus": [], "load": [0, 0, 0],
}  # fmt: skip


def passes(lengths: dict[str, list[list[float]]], loads: tuple[int, ...] = (1,)) -> list[Pass]:
    """lengths: arm -> phase -> acceptance length of each piece. A piece has 120 tokens and takes 1 s a verify step, so
    that the acceptance length is also the rate, and with `loads`, which pieces take in turn, the rate of each request
    at a time; arms take turns on one clock."""
    made, clock = [], 1000.0
    arms = list(lengths)
    for phase in range(len(lengths[arms[0]])):
        for piece in range(len(lengths[arms[0]][phase])):
            for arm in arms:
                steps = round(TOKENS / lengths[arm][phase][piece])
                load = loads[piece % len(loads)]
                counts = (steps / load, 2, 0, TOKENS, steps)
                made.append(Pass(phase, piece, arm, clock, *counts, phase, False, ("x", arm), load))
                clock += steps / load
    return made


def event(moment: float, kind: str, text: str, **data: object) -> dict:
    """A row of the journal."""
    return {"id": 1, "time": moment, "kind": kind, "text": text, "data": data}


def swap(moment: float, version: int) -> dict:
    return event(moment, "swap", f"v{version:04d} is served", version=version)


def taken_back(moment: float, returns: int) -> dict:
    text = f"v{returns + 1:04d} is taken back, v{returns:04d} returns"
    return event(moment, "rollback", text, version=returns + 1, previous=returns)


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
    reached = {"tokens": 6 * 120, "seconds": 3 * 80 + 3 * 60, "wall_s": 6 * 80 + 3 * 80 + 180}
    assert ninety(own, static, 0.5, 3) == reached
    assert ninety(own, static, 0.6, 3) is None  # 90 % of it is never reached
    # one lucky piece at the begin is no level: every window is whole
    lucky = passes({STATIC: [[1.5] * 9], TIDE: [[2.5, *RISING[1:]]]})
    assert ninety(lucky[1::2], static, 0.5, 3)["tokens"] == 6 * 120


@pytest.mark.parametrize(
    ("rising", "pieces"), [([1.5] * 6 + [2.0] * 2, 8), ([1.5] * 7 + [2.0], 8), ([1.5] * 4 + [2.0] * 4, 6)]
)
def test_a_clear_gain_has_its_ninety_per_cent(rising: list[float], pieces: int) -> None:
    """Before and after are windows of one size: what the last third has gained, a window reaches at the end at last."""
    (phase,) = phase_figures(passes({STATIC: [[1.5] * 8], TIDE: [rising]}), ["a"], [STATIC, TIDE])
    live = phase["live"][TIDE]
    assert live["clear"]
    assert live["to_90"]["tokens"] == pieces * 120
    assert f" {pieces * 120} " in shown(live)


def shown(live: dict) -> str:
    return " ".join([gain(live), *reached(live)])


def test_a_gain_within_the_scatter_of_the_pieces_is_not_clear() -> None:
    of = passes({STATIC: [[1.5] * 9], TIDE: [[1.5, 1.6, 1.4, 1.6, 1.4, 1.5, 1.6, 1.5, 1.6]]})
    (phase,) = phase_figures(of, ["a"], [STATIC, TIDE])
    live = phase["live"][TIDE]
    assert live["gain"] > 0.05
    assert live["gain_error"] == pytest.approx(0.061, abs=0.001)
    assert (live["clear"], live["to_90"]) == (False, None)
    assert shown(live) == "+0.07 ± 0.06 no clear gain -"
    (alone,) = phase_figures(passes({STATIC: [[1.5]], TIDE: [[2.0]]}), ["a"], [STATIC, TIDE])
    assert (alone["live"][TIDE]["gain_error"], alone["live"][TIDE]["to_90"]) == (None, None)
    assert shown(alone["live"][TIDE]) == "+0.50 no clear gain -"


def test_hard_prompts_cancel() -> None:
    """The acceptance length of both arms jumps with the prompts; the gain does not."""
    of = passes({STATIC: [[1.2, 2.0, 1.5]], TIDE: [[1.2, 2.0, 1.5]]})
    assert ninety(of[1::2], of[::2], 0.3, 1) is None


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
    assert third["live"][TIDE]["recovered"]["tokens"] == 3 * 120  # at once: with the first window
    assert third["live"][NO_POOL]["recovered"] is None


def test_no_rate_is_of_several_concurrencies() -> None:
    lengths = {STATIC: [[1.5] * 9], TIDE: [[*RISING[:7], 2.0, 2.5]]}
    made = passes(lengths, (1, 4))  # five pieces at 1, four at 4
    (phase,) = phase_figures(made, ["a"], [STATIC, TIDE])
    (alone,) = phase_figures([one for one in made if one.concurrency == 1], ["a"], [STATIC, TIDE])
    (four,) = phase_figures([one for one in made if one.concurrency == 4], ["a"], [STATIC, TIDE])
    for arm in (STATIC, TIDE):
        rates = {name: phase["arms"][arm][name] for name in ("tok_s", "late_tok_s")}
        assert rates == {name: alone["arms"][arm][name] for name in rates}  # of the first one
        for load, of in (("1", alone), ("4", four)):
            assert {name: phase["at"][load][arm][name] for name in rates} == {n: of["arms"][arm][n] for n in rates}
    assert phase["at"]["1"][TIDE]["late_tok_s"] == 2.5
    assert phase["at"]["4"][TIDE]["late_tok_s"] == 4 * 2.0
    assert (phase["at"]["1"][TIDE]["late_ratio"], phase["live"][TIDE]["late_ratio"]) == (2.5 / 1.5, 2.5 / 1.5)
    assert phase["at"]["4"][TIDE]["late_ratio"] == 2.0 / 1.5
    (without,) = phase_figures(passes(lengths), ["a"], [STATIC, TIDE])
    assert "at" not in without
    for name in ("al", "late_al"):  # those may be of all
        assert phase["arms"][TIDE][name] == without["arms"][TIDE][name]
    assert (phase["live"][TIDE]["gain"], phase["tokens"]) == (without["live"][TIDE]["gain"], without["tokens"])


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


def failed(of: list[Measured], number: int) -> list[Measured]:
    return [Measured(**{**vars(one), "errors": 5}) if one.round == number else one for one in of]


def test_a_round_with_a_failed_request_is_in_no_figure_but_told() -> None:
    of = [*failed(measured("code", STATIC, [2, 10]), 0), *measured("code", TIDE, [12, 12])]
    code = domain_figures(of)["code"]
    assert (code["ratio"], code["rounds"], code["errors"]) == (1.2, 1, 5)
    entries = {"measured": [vars(one) for one in failed(failed(of, 0), 1)]}
    report = adapt_figures({"settings": {}}, ["code"], [STATIC, TIDE], entries, [])
    assert report["domains"]["code"]["at"] == {"4": {"rounds": 0, "requests": 32, "errors": 20}}
    words = list(reading(report))
    assert "20 requests failed; 0 of 0 answers were the same text in every arm." in words
    assert "20 requests failed in the comparison at the end: the rounds with them do not count." in words
    page = adapt_page({"adapt": report, "environment": ENVIRONMENT})
    assert "<td>code</td><td>4</td><td>0</td><td>-</td>" in page
    as_tables(report)


def at_the_end(rates: dict[tuple[str, str], float], rounds: int = 2) -> dict:
    """rates: (domain, contestant) -> output tok/s."""
    of = [one for (domain, name), rate in rates.items() for one in measured(domain, name, [rate] * rounds)]
    return adapt_figures({"settings": {}}, ["code"], [STATIC, TIDE], {"measured": [vars(one) for one in of]}, [])


def test_in_short_names_where_a_draft_is_slower_than_none() -> None:
    rates = {("code", STATIC): 10, ("code", TIDE): 15, ("code", PLAIN): 12}
    rates |= {("korean", STATIC): 10, ("korean", TIDE): 12, ("korean", PLAIN): 16}
    rates |= {(GENERAL, STATIC): 10, (GENERAL, TIDE): 11, (GENERAL, PLAIN): 12.5}
    first, second, *_ = reading(at_the_end(rates))
    assert first == (
        "With 4 at a time TIDE's last draft gives 1.50 times the output of the static one on code, the best, "
        "and 1.10 times on general traffic, the least."
    )
    assert second == (
        "It gives less than decoding without a draft on korean (0.75 times with 4 at a time), "
        "general traffic (0.88 times with 4 at a time)."
    )
    assert "less than" not in " ".join(reading(at_the_end({("code", name): 10 for name in (STATIC, TIDE, PLAIN)})))


@pytest.mark.parametrize(("rounds", "brackets"), [(1, False), (2, False), (3, True)])
def test_a_spread_needs_three_rounds(rounds: int, brackets: bool) -> None:
    report = at_the_end({("code", STATIC): 10, ("code", TIDE): 15}, rounds)
    table = Console(width=200, file=io.StringIO())
    table.print(as_tables(report))
    page = adapt_page({"adapt": report, "environment": ENVIRONMENT})
    assert ("1.50 (1.50–1.50)" in table.file.getvalue()) == ("1.50 (1.50–1.50)" in page) == brackets


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


def test_a_thing_has_one_colour_and_a_domain_begins_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, dict[str, int | None]] = {}
    marks = []

    def lines(curves, *, colors, **more) -> None:
        drawn[more["unit"]] = {name: colors[name] for name in curves}
        marks.append(more["marks"])

    def bars(groups, series, *, unit, at) -> None:
        drawn[unit] = {one.name: one.color for one in series}

    monkeypatch.setattr("tide_cli.bench.adapt_curves.lines", lines)
    monkeypatch.setattr("tide_cli.bench.adapt_page.bars", bars)
    arms = [STATIC, TIDE, NO_POOL]
    made = passes({arm: [[1.5] * 2, [1.5] * 2] for arm in arms})
    entries = {
        "pass": [{**vars(one), "texts": list(one.texts)} for one in made],
        "measured": [vars(one) for name in (STATIC, TIDE, OWN, PLAIN) for one in measured("code", name, [10], 1)],
    }
    options = {"settings": {"draft": None}, "order": ("code", "sql"), "general": (), "plain": True, "seed": 3}
    second, third, fourth = (made[3 * piece + 1].begun + 20 for piece in (1, 2, 3))
    events = [swap(second, 2), swap(third, 3), taken_back(fourth, 2), swap(fourth, 2)]
    report = adapt_figures(options, ["code", "sql"], arms, entries, events)
    text = adapt_page({"adapt": report, "environment": ENVIRONMENT})
    for name in (STATIC, TIDE, OWN, NO_POOL):
        assert len({colors[name] for colors in drawn.values() if name in colors}) == 1
    assert len({color for colors in drawn.values() for color in colors.values()}) == 4
    tokens, seconds = (list(found.values()) for found in marks[:2])
    assert tokens == [[(0, "code"), (240, "sql")], [(150, "v0002"), (270, "v0003")], [(390, "v0002")]]
    assert seconds == [[(0, "code"), (160, "sql")], [(100, "v0002"), (180, "v0003")], [(260, "v0002")]]
    assert marks == marks[:2] * 2
    rows = [f"<td>{name}</td><td>{said}</td>" for name, said in (("order", "code, sql"), ("general", "none"))]
    assert all(row in text for row in (*rows, "<td>plain</td><td>yes</td>", "<td>seed</td><td>3</td>"))


def drawings(report: dict, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict], str]:
    """What `lines` is asked to draw for the page, in order, and the page."""
    found = []

    def lines(series, **more) -> str:
        found.append({"series": series, **more})
        return "<svg></svg>"

    monkeypatch.setattr("tide_cli.bench.adapt_curves.lines", lines)
    monkeypatch.setattr("tide_cli.bench.adapt_page.bars", lambda *_, **__: None)
    return found, adapt_page({"adapt": report, "environment": ENVIRONMENT})


def test_each_concurrency_has_its_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    made = passes({STATIC: [[1.5] * 4], TIDE: [[1.5, 1.5, 2.0, 2.0]]}, (1, 4))
    entries = {"pass": [{**vars(one), "texts": list(one.texts)} for one in made]}
    entries["measured"] = [
        vars(one)
        for name, rate in ((STATIC, 10), (TIDE, 20), (PLAIN, 8))
        for domain, times in (("code", 1), ("sql", 4), ("math", 9))
        for load in (1, 4)
        if (domain, load) != ("math", 4)  # not measured yet
        for one in measured(domain, name, [rate * times * load] * 3, load)
    ]
    report = adapt_figures({"settings": {}, "concurrency": [1, 4]}, ["code"], [STATIC, TIDE], entries, [])
    found, text = drawings(report, monkeypatch)
    *over_time, by_load = found
    assert [(one["unit"], one["x_unit"].split()[0]) for one in over_time] == [
        (unit, axis) for unit in ("acceptance length", "output tok/s") for axis in ("completion", "seconds")
    ]
    tokens, seconds = over_time[2:]
    name = f"{TIDE}, 4 at a time"
    assert list(tokens["series"]) == [f"{arm}, {load} at a time" for arm in (STATIC, TIDE) for load in (1, 4)]
    assert tokens["series"][name] == [(240, 4 * 1.5), (480, 4 * 2.0)]
    assert seconds["series"][name] == [(80 + 20, 4 * 1.5), (80 + 20 + 60 + 15, 4 * 2.0)]
    assert tokens["colors"][name] == tokens["colors"][f"{TIDE}, 1 at a time"]
    assert tokens["dashes"][name] != tokens["dashes"][f"{TIDE}, 1 at a time"]
    assert by_load["series"] == {
        arm: [(1, pytest.approx(2 * rate)), (4, pytest.approx(8 * rate))]
        for arm, rate in ((STATIC, 10), (TIDE, 20), (PLAIN, 8))
    }
    assert "the geometric mean over code, sql." in text
    assert "1 / 4: a phase&#x27;s pieces were answered so many at a time in turn." in text
    assert "<td>1.5 / 6.0</td><td>2.0 / 8.0</td><td>1.33 / 1.33</td>" in text
    table = Console(width=200, file=io.StringIO())
    table.print(as_tables(report))
    assert "2.0 / 8.0" in table.file.getvalue()


def test_one_concurrency_has_no_figure_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    made = passes({STATIC: [[1.5] * 2], TIDE: [[1.5, 2.0]]})
    entries = {"pass": [{**vars(one), "texts": list(one.texts)} for one in made]}
    entries["measured"] = [vars(one) for name in (STATIC, TIDE) for one in measured("code", name, [10], 1)]
    report = adapt_figures({"settings": {}, "concurrency": 1}, ["code"], [STATIC, TIDE], entries, [])
    found, text = drawings(report, monkeypatch)
    assert [list(one["series"]) for one in found] == [[STATIC, TIDE]] * 4
    assert " / 4" not in text


def test_a_swap_has_its_place_in_the_traffic() -> None:
    made = passes({STATIC: [[1.5] * 2], TIDE: [[1.5] * 2]})  # 80 s each, in turns: from 1000, 1080, 1160 and 1240 on
    rows = [swap(1100.0, 2), swap(1200.0, 3), taken_back(1250.0, 2), swap(1260.0, 4), swap(1270.0, 2), swap(1280.0, 4)]
    found = [one for one in told(rows, made) if one["kind"] == "swap"]
    assert [one["version"] for one in found] == [2, 3, 4, 2, 4]
    assert [one["version"] for one in found if one["back"]] == [2]  # the successor that was under way is none
    assert [one["seconds"] for one in found] == [20, 80, 100, 110, 120]  # of TIDE's arm, the second in each turn
    assert [one["tokens"] for one in found] == [0, 120, 120, 120, 120]
    assert [one["wall_s"] for one in found] == [100, 200, 260, 270, 280]


def test_an_interruption_is_no_part_of_any_time() -> None:
    made = passes({STATIC: [[1.5] * 3], TIDE: [RISING[2:5]]})
    late = [Pass(**{**vars(one), "begun": one.begun + 5000 * (place > 2)}) for place, one in enumerate(made)]
    session = {"begun": late[3].begun}
    rows = [swap(made[1].begun + 1, 2), swap(made[3].begun + 7, 3), swap(made[3].begun + 5001, 4)]
    reports = [
        adapt_figures(
            {"settings": {}},
            ["code"],
            [STATIC, TIDE],
            {"pass": [{**vars(one), "texts": list(one.texts)} for one in each], "session": sessions},
            events,
        )
        for each, sessions, events in ((made, [], []), (late, [{"begun": session["begun"] - 9}, session], rows))
    ]
    whole, report = reports
    assert whole["series"] == report["series"]
    assert whole["phases"] == report["phases"]
    assert [event["wall_s"] for event in report["events"]] == [81, 240, 241]  # the second one in between


def test_one_request_at_a_time_is_said_so() -> None:
    pytest.importorskip("matplotlib")
    of = [vars(one) for name in (STATIC, TIDE) for one in measured("code", name, [10], 1)]
    report = adapt_figures({"settings": {}}, ["code"], [STATIC, TIDE], {"measured": of}, [])
    assert "Against the static draft, 1 request at a time." in adapt_page({"adapt": report, "environment": ENVIRONMENT})


def test_the_report_at_every_stage() -> None:
    """From nothing to everything: each table and each sentence can be made."""
    made = passes({STATIC: [[1.5] * 3], TIDE: [[1.5, 2.0, 2.0]]})
    entries: dict[str, list] = {}
    events = [
        swap(990.0, 1),  # before the first piece
        swap(made[3].begun + 1, 2),
        event(made[3].begun + 1, "started", "engine started"),
        event(made[-1].begun + 999, "use", "v0001 asked for by the user", version=1),  # measuring begins
        swap(made[-1].begun + 999, 1),
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
