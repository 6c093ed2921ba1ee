"""The order of an adaptation experiment, and how it goes on after an interruption, on arms that only note requests."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tide_cli.bench.adapt import run_adapt
from tide_cli.bench.adapt_guards import failures, judge_adapt
from tide_cli.bench.adapt_kept import write_report
from tide_cli.bench.adapt_options import OWN_SETTINGS, AdaptOptions, Script
from tide_cli.bench.adapt_page import adapt_page
from tide_cli.bench.adapt_table import reading
from tide_cli.bench.arms import Arms
from tide_cli.bench.client import Answer
from tide_cli.bench.guards import parse_guard
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.progress import Progress
from tide_cli.bench.report import take_environment
from tide_cli.bench.requests import Request
from tide_cli.cli import main
from tide_cli.errors import TideError, UsageError

PASS = json.dumps(
    {
        **{"kind": "pass", "phase": 0, "piece": 0, "arm": "tide", "begun": 1.0, "seconds": 1.0, "requests": 2},
        **{"errors": 0, "tokens": 16, "verify_steps": 8, "draft": 1, "training": False, "texts": ["a", "b"]},
    }
)


class Arm:
    """Answers with 8 tokens in 8 / (1 + served version) steps; a captured request of TIDE's makes it one better."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.settings = SimpleNamespace()

    def status(self) -> dict[str, Any]:
        return {
            "drafts": {"served": self.world.served[self.name]},
            "training": {"running": False},
            "spool": {"tokens": 8},
            "gate": None,
        }

    def use_draft(self, version: int) -> None:
        self.world.journal.append(("use", version, self.name))

    def flush_cache(self) -> None:
        self.world.journal.append(("flush", self.name))


class World:
    """Stands in for `Arms` and the functions beside it. journal: (arm, prompts, captured, concurrency or
    arrivals), in order."""

    def __init__(self) -> None:
        self.journal: list[Any] = []
        self.served = {"static": 1, "tide": 1, "no_pool": 1, "policy": 1, "plain": None}
        self.answers_left = 10**9
        self.own: dict[str, Mapping[str, Any]] = {}
        self.in_force = {"draft_steps": 3, "sglang_arguments": []}
        self.text = "text"
        self.refused = ""  # how the prompts begin that cannot be answered

    def arms(self, folder: Path, common: Mapping[str, Any], interrupts: object) -> World:
        self.folder, self.common = folder, common
        return self

    def effective(self) -> dict[str, Any]:
        return dict(self.in_force)

    def settings(self, name: str) -> Any:
        return SimpleNamespace(paths=SimpleNamespace(database=self.folder / name / "tide.db"))

    @contextmanager
    def standing(self, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Arm]]:
        self.journal.append(("up", *wanted))
        self.own = {**self.own, **wanted}
        yield {name: Arm(name, self) for name in wanted}
        self.journal.append(("down", *wanted))

    def copy(self, source: str, target: str) -> None:
        self.journal.append(("copy", source, target))

    def send(
        self, arm: Arm, requests, concurrency: int | None, *, arrivals, captured: bool, on_answer, all_may_fail
    ) -> list[Answer]:
        if self.answers_left <= 0:
            raise KeyboardInterrupt
        self.answers_left -= len(requests)
        self.journal.append((arm.name, [r.messages[0]["content"] for r in requests], captured, arrivals or concurrency))
        steps = None if arm.name == "plain" else 8 // (1 + self.served[arm.name])
        answers = [Answer(r, 0.0, 1.0, 2.0, (1.0, 2.0), 4, 8, steps, self.text, self.error(r)) for r in requests]
        for answer in answers:
            on_answer(answer)
        if captured and arm.name in ("tide", "policy") and self.served[arm.name] < 3 + (arm.name == "policy"):
            self.served[arm.name] += 1
        return answers

    def error(self, request: Request) -> str | None:
        return "refused" if self.refused and request.messages[0]["content"].startswith(self.refused) else None

    def sent(self) -> list[Any]:
        return [entry for entry in self.journal if entry[0] in self.served]


class Told(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr("tide_cli.bench.adapt.Arms", made.arms)
    monkeypatch.setattr("tide_cli.bench.adapt.send", made.send)
    monkeypatch.setattr("tide_cli.bench.adapt.warm_up", lambda arm: None)
    monkeypatch.setattr("tide_cli.bench.adapt.pause", lambda arm, paused: None)
    monkeypatch.setattr("tide_cli.bench.adapt.settle", lambda arm: arm.world.served[arm.name])
    return made


@pytest.fixture
def options(tmp_path: Path) -> AdaptOptions:
    folder = tmp_path / "workload"
    folder.mkdir()
    for name in ("chat", "code", "sql"):
        lines = [json.dumps({"messages": [{"role": "user", "content": f"{name} {i}"}]}) for i in range(12)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return AdaptOptions(
        folder,
        ("code", "sql"),
        ("chat",),
        general_requests=4,
        requests=4,
        piece=2,
        held_out=2,
        rounds=2,
        concurrency=(1,),
    )


def test_every_arm_gets_the_same_requests_in_the_same_order(
    options: AdaptOptions, tmp_path: Path, world: World
) -> None:
    report = run_adapt(options, tmp_path / "run", {}, Progress())
    first, *_ = world.sent()
    assert first[0] == "tide"
    assert all(text.startswith("chat") for text in first[1])
    assert world.journal.index(("copy", "tide", "static")) < world.journal.index(("up", "static", "tide"))
    traffic = [entry for entry in world.sent()[1:] if entry[2]]
    assert [entry[0] for entry in traffic] == ["static", "tide", "tide", "static"] * 2
    by_arm = {arm: [entry[1] for entry in traffic if entry[0] == arm] for arm in ("static", "tide")}
    assert by_arm["static"] == by_arm["tide"]
    sent = {text for piece in by_arm["tide"] for text in piece}
    measured = [entry for entry in world.sent() if not entry[2]]
    assert {entry[0] for entry in measured} == {"tide", "plain"}
    assert not sent & {text for entry in measured for text in entry[1]}
    adapt = report["adapt"]
    assert adapt["finished"]
    assert (adapt["static"]["version"], adapt["final"], adapt["static"]["requests"]) == (2, {"tide": 3}, 4)
    assert set(adapt["domains"]) == {"code", "sql"}
    assert adapt["domains"]["code"]["rounds"] == 2
    assert [point["phase_name"] for point in adapt["series"]] == ["code", "code", "sql", "sql"]
    assert json.loads((tmp_path / "run" / "report.json").read_text())["adapt"] == json.loads(json.dumps(adapt))


def test_a_domain_that_is_general_traffic_too_trains_on_nothing_that_is_measured(options: AdaptOptions) -> None:
    """Nor does one that holds a prompt of another."""
    lines = (options.workload / "code.jsonl").read_text()
    (options.workload / "sql.jsonl").write_text((options.workload / "sql.jsonl").read_text() + "\n" + lines)
    for general in (("code", "chat"), ("code",), ("chat",)):
        more = {"general": general, "general_requests": 40, "requests": 40}
        script = Script.of(AdaptOptions(**{**vars(options), **more}))
        traffic = [*script.general, *(request for phase in script.phases for request in phase.requests)]
        measured = [request.messages for of in script.measured.values() for request in of]
        assert [len(of) for of in script.measured.values()] == [2, 2, 2]
        assert not [request.messages for request in traffic if request.messages in measured]


@pytest.mark.parametrize("answers", [0, 3, 5, 9, 17, 20, 24, 31])
def test_an_interrupted_run_goes_on_where_it_was(
    options: AdaptOptions, tmp_path: Path, world: World, answers: int
) -> None:
    whole = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tide_cli.bench.adapt.Arms", whole.arms)
        patch.setattr("tide_cli.bench.adapt.send", whole.send)
        run_adapt(options, tmp_path / "whole", {}, Progress())
    world.answers_left = answers
    told = Told()
    with pytest.raises(KeyboardInterrupt):
        run_adapt(options, tmp_path / "run", {}, told)
    world.answers_left, cut = 10**9, len(told.lines)
    report = run_adapt(options, tmp_path / "run", {}, told)
    assert world.sent() == whole.sent()  # nothing twice, nothing left out
    assert report["adapt"]["finished"]
    assert sum(line.startswith("  piece") for line in told.lines) == 4  # each is told once
    begun = [place for place, line in enumerate(told.lines) if line.startswith("phase")]
    assert all(told.lines[place + 1].startswith("  piece") for place in begun if place + 1 < cut or place >= cut)
    done = len(world.journal)
    run_adapt(options, tmp_path / "run", {}, Progress())
    assert len(world.journal) == done  # all is there: nothing is started


def test_a_third_arm_without_the_pool(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    options = AdaptOptions(**{**vars(options), "order": ("code", "sql", "code"), "without_pool": True, "plain": False})
    report = run_adapt(options, tmp_path / "run", {}, Progress())
    assert ("copy", "tide", "no_pool") in world.journal
    assert [phase["visit"] for phase in report["adapt"]["phases"]] == [0, 0, 1]
    assert set(report["adapt"]["phases"][2]["live"]) == {"tide", "no_pool"}


def test_a_further_arm_goes_by_the_policy(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    options = AdaptOptions(**{**vars(options), "with_policy": True})
    adapt = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]
    assert ("copy", "tide", "policy") in world.journal
    assert world.own["policy"] == OWN_SETTINGS["policy"] | {"speculation": "auto"}
    traffic = {arm: [e[1] for e in world.sent()[1:] if e[0] == arm and e[2]] for arm in ("tide", "policy")}
    pieces = len(traffic["tide"])
    assert traffic["policy"][:pieces] == traffic["tide"]
    # the policy sees what is accepted in the end, too
    assert traffic["policy"][pieces:] == [e[1] for e in world.sent() if e[0] == "plain"]
    assert adapt["final"] == {"tide": 3, "policy": 4}
    used = {entry[1:] for entry in world.journal if entry[0] == "use"}
    assert used == {(2, "tide"), (3, "tide"), (4, "policy")}  # each arm's drafts are its own
    assert set(adapt["phases"][0]["live"]) == {"tide", "policy"}
    code = adapt["domains"]["code"]
    assert code["policy_al"] == 8.0
    assert {"policy_to_plain", "policy_to_tide", "policy_ratio"} <= code.keys()


def test_the_pieces_take_several_concurrencies_in_turn(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    options = AdaptOptions(**{**vars(options), "requests": 8, "concurrency": (1, 3), "measure_at": (1, 3)})
    told = Told()
    adapt = run_adapt(options, tmp_path / "run", {}, told)["adapt"]
    general, *sent = world.sent()
    traffic = [(arm, prompts, load) for arm, prompts, captured, load in sent if captured]
    assert (general[3], {load for *_, captured, load in sent if not captured}) == (1, {1, 3})
    code = [(arm, load) for arm, _, load in traffic[:8]]
    assert code[:4] == [("static", 1), ("tide", 1), ("static", 3), ("tide", 3)]
    assert code[4:] == [("tide", 1), ("static", 1), ("tide", 3), ("static", 3)]  # nobody is first everywhere
    assert [each[1:] for each in traffic if each[0] == "tide"] == [each[1:] for each in traffic if each[0] == "static"]
    assert [point["concurrency"] for point in adapt["series"]] == [1, 3] * 4
    assert list(adapt["phases"][0]["at"]) == ["1", "3"]
    assert adapt["options"]["concurrency"] == [1, 3]
    assert sum(line.startswith("  piece 2, 3 at a time: static v") for line in told.lines) == 2
    done = len(world.journal)
    assert run_adapt(options, tmp_path / "run", {}, Progress())["adapt"] == adapt
    assert len(world.journal) == done
    with pytest.raises(UsageError) as refused:
        run_adapt(AdaptOptions(**{**vars(options), "concurrency": (1,)}), tmp_path / "run", {}, Progress())
    assert refused.value.why == "it differs in concurrency"


def test_the_traffic_arrives_as_in_a_trace(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    rows = [(0, 10), (1, 20), (1, 3), (4, 200), (50, 9), (50.5, 9), (52, 9), (60, 9), (61, 9)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["timestamp_s,output_tokens", *(f"{at},{length}" for at, length in rows)]))
    digest = Script.of(options).digest()
    options = AdaptOptions(**{**vars(options), "trace": trace, "speed": 2.0})
    adapt = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]
    general, *sent = world.sent()
    assert general[3] == 1  # what is no traffic of a phase is sent at the concurrency
    assert {load for *_, captured, load in sent if not captured} == {4}
    traffic = {arm: [each[3] for each in sent if each[0] == arm and each[2]] for arm in ("static", "tide")}
    assert traffic["tide"] == [(0.0, 0.5), (0.0, 1.5), (0.0, 0.25), (0.0, 4.0)]
    assert traffic["static"] == traffic["tide"]
    phases = Script.of(options).phases
    assert [one.max_tokens for phase in phases for one in phase.requests] == [10, 20, 3, 96, 9, 9, 9, 9]
    assert [point["concurrency"] for point in adapt["series"]] == [None] * 4
    assert (adapt["options"]["trace"], adapt["options"]["speed"]) == (str(trace), 2.0)
    assert Script.of(options).digest() != digest
    page = adapt_page({"adapt": adapt, "environment": take_environment()})
    assert "The requests of the traffic came when the trace says" in page
    trace.write_text(trace.read_text().replace("50.5", "51"))
    with pytest.raises(UsageError, match="holds another run") as refused:
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert refused.value.why == "it differs in the prompts of the workload or the trace"


def test_a_run_that_is_older_than_an_option_is_gone_on_with(
    options: AdaptOptions, tmp_path: Path, world: World
) -> None:
    report = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]
    assert report["options"]["concurrency"] == 1
    file, done = tmp_path / "run" / "results.jsonl", len(world.journal)
    head, *rest = file.read_text().splitlines()
    had = json.loads(head)
    del had["settings"], had["script"]
    for option in ("with_policy", "trace", "speed"):
        del had["options"][option]
    parts = [json.loads(line) for line in rest]
    assert sum(part.pop("concurrency") == 1 for part in parts if part["kind"] == "pass") == 8
    file.write_text("\n".join(map(json.dumps, [had, *parts])) + "\n")
    assert run_adapt(options, tmp_path / "run", {}, Progress())["adapt"] == report
    assert len(world.journal) == done
    with pytest.raises(UsageError) as refused:
        run_adapt(AdaptOptions(**{**vars(options), "with_policy": True}), tmp_path / "run", {}, Progress())
    assert refused.value.why == "it differs in with_policy"


def test_a_number_of_draft_steps_is_the_same_as_its_text(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    def run(speculation: str | int) -> None:
        settings = (("target", "tiny"), ("speculation", speculation))
        run_adapt(AdaptOptions(**{**vars(options), "settings": settings}), tmp_path / "run", {}, Progress())

    run("2")  # as runs kept it once
    done = len(world.journal)
    run(2)
    assert len(world.journal) == done
    with pytest.raises(UsageError, match="holds another run"):
        run(3)


def test_what_every_learning_arm_has_its_own_is_no_setting_of_the_experiment(
    options: AdaptOptions, tmp_path: Path, world: World
) -> None:
    world.in_force["keep_drafts"] = 16
    asked = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]["options"]
    assert "keep_drafts" not in asked["settings"]
    world.in_force["keep_drafts"] = 8
    run_adapt(options, tmp_path / "run", {}, Progress())


def test_other_options_are_another_experiment(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    run_adapt(options, tmp_path / "run", {}, Progress())
    with pytest.raises(UsageError, match="holds another run"):
        run_adapt(AdaptOptions(**{**vars(options), "piece": 1}), tmp_path / "run", {}, Progress())


def test_other_settings_or_prompts_are_another_experiment(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    run_adapt(options, tmp_path / "run", {}, Progress())
    done = len(world.journal)
    world.in_force["draft_steps"] = 1
    with pytest.raises(UsageError, match="holds another run") as refused:
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert refused.value.why == "it differs in the setting draft_steps"
    world.in_force = {"draft_steps": 3, "younger": True}  # a setting that the run did not know says nothing
    run_adapt(options, tmp_path / "run", {}, Progress())
    file = options.workload / "sql.jsonl"
    file.write_text(file.read_text().replace("sql", "query"))
    with pytest.raises(UsageError, match="holds another run") as refused:
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert refused.value.why == "it differs in the prompts of the workload"
    assert len(world.journal) == done


def test_the_settings_in_force_are_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def effective() -> dict[str, Any]:
        with Interrupts() as interrupts:
            return Arms(tmp_path, {"gpus": "cpu", "cycle_tokens": 7}, interrupts).effective()

    plain = effective()
    assert plain == effective()  # the port, which is drawn, is none of them
    assert plain["cycle_tokens"] == 7
    monkeypatch.setenv("TIDE_DRAFT_STEPS", "1")
    monkeypatch.setenv("TIDE_START_TIMEOUT", "999")
    changed = effective()
    assert {name for name in plain if plain[name] != changed[name]} == {"draft_steps"}


def test_a_report_is_replaced_in_one_step(tmp_path: Path) -> None:
    write_report(tmp_path, {"adapt": 1})
    (tmp_path / ".report.json").mkdir()  # where the next one cannot be written
    with pytest.raises(TideError, match="cannot write") as failed:
        write_report(tmp_path, {"adapt": 2})
    assert failed.value.why == "it is a folder"
    assert json.loads((tmp_path / "report.json").read_text()) == {"adapt": 1}


def test_a_domain_that_cannot_be_answered_stops_nothing(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    world.refused = "sql"
    adapt = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]
    assert adapt["finished"]
    assert [phase["arms"]["tide"]["errors"] for phase in adapt["phases"]] == [0, 4]
    assert (adapt["domains"]["code"]["errors"], adapt["domains"]["sql"]["errors"]) == (0, 12)
    assert "tide_tok_s" in adapt["domains"]["code"]
    assert "tide_tok_s" not in adapt["domains"]["sql"]
    assert adapt["reasons"] == ["refused"]
    assert "20 requests failed (refused);" in "\n".join(reading(adapt))
    assert failures(adapt) == [
        "none of 4 requests of the phase sql by static was answered: refused",
        "none of 4 requests of the phase sql by tide was answered: refused",
        "sql, 4 at a time, has no round without failed requests: refused",
    ]
    world.refused = ""
    assert failures(run_adapt(options, tmp_path / "good", {}, Progress())["adapt"]) == []


def test_an_experiment_without_an_answer_fails(
    options: AdaptOptions, tmp_path: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.refused = "code"
    few = ["--requests", "2", "--held-out", "2", "--rounds", "1", "--domains", "code"]
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as end:
        main(["bench", "adapt", "--workload", str(options.workload), *few, "--html", str(page), "--json"])
    printed = capsys.readouterr()
    *_, failed = json.loads(printed.out)["adapt"]["failures"]
    assert end.value.code == 1
    assert failed == "code, 4 at a time, has no round without failed requests: refused"
    assert f"tide: {failed}" in printed.err
    assert f'<li class="bad">{failed}</li>' in page.read_text()


def test_the_report_says_what_the_arms_were_run_with(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    asked = run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]["options"]
    assert asked["settings"] == world.in_force  # TIDE_* and the settings file among them
    assert asked["prompts_sha256"] == Script.of(options).digest()


def test_half_a_character_is_an_answer_like_another(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    world.text = "\ud800"
    assert run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]["identical"] == {"requests": 8, "same": 8}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (0, '{"bench": "adapt"}'),
        (1, '{"kind": "pass", "phase": 0}'),
        (1, '{"piece": 1}'),
        (1, '{"kind": "general_pass", "requests": 4}'),
        (2, '{"kind": "static"}'),
        (3, PASS.replace('"phase": 0', '"phase": 99')),
        (3, PASS.replace('["a", "b"]', '["a"]')),
        (11, '{"kind": "final", "versions": {}}'),
    ],
)
def test_damaged_results_are_refused(  # line 2 is the static draft, 3 to 10 are passes
    line: int, wrong: str, options: AdaptOptions, tmp_path: Path, world: World
) -> None:
    run_adapt(options, tmp_path / "run", {}, Progress())
    file, done = tmp_path / "run" / "results.jsonl", len(world.journal)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:line], wrong, *lines[line + 1 :], ""]))
    with pytest.raises(UsageError, match="cannot be gone on with"):
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert len(world.journal) == done


def test_a_first_line_without_its_machine_is_refused(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    run_adapt(options, tmp_path / "run", {}, Progress())
    file = tmp_path / "run" / "results.jsonl"
    head, rest = file.read_text().split("\n", 1)
    file.write_text(json.dumps(json.loads(head) | {"environment": "a laptop"}) + "\n" + rest)
    with pytest.raises(UsageError, match="cannot be gone on with") as refusal:
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert refusal.value.why == "its first line names no environment"


def test_the_clock_stands_still_while_it_is_interrupted(
    options: AdaptOptions, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(0, 10**6, 10))  # a pass takes 2 s, and the clock is looked at every 10 s
    monkeypatch.setattr("tide_cli.bench.adapt.time", SimpleNamespace(time=lambda: float(next(moments))))
    whole = run_adapt(options, tmp_path / "whole", {}, Progress())
    again = World()
    monkeypatch.setattr("tide_cli.bench.adapt.Arms", again.arms)
    monkeypatch.setattr("tide_cli.bench.adapt.send", again.send)
    again.answers_left = 12  # the general traffic, and the first two pieces
    with pytest.raises(KeyboardInterrupt):
        run_adapt(options, tmp_path / "run", {}, Progress())
    again.answers_left = 0
    next(moment for moment in moments if moment >= 50_000)
    with pytest.raises(KeyboardInterrupt):
        run_adapt(options, tmp_path / "run", {}, Progress())
    again.answers_left = 10**9
    next(moment for moment in moments if moment >= 500_000)
    report = run_adapt(options, tmp_path / "run", {}, Progress())
    of, one = ([point["wall_s"] for point in each["adapt"]["series"]] for each in (whole, report))
    assert of == [12, 32, 52, 72]
    assert one == [12, 32, 54, 74]  # from ready engines to the first piece a look at the clock, else 8 s between two


def test_events_of_the_arm_that_learns_are_in_the_report(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    folder = tmp_path / "run" / "tide"
    run_adapt(options, tmp_path / "run", {}, Progress())
    folder.mkdir()
    with sqlite3.connect(folder / "tide.db") as database:
        database.execute("create table events (id integer primary key, time, kind, text, data)")
        database.execute("insert into events (time, kind, text, data) values (1e12, 'swap', 'v0009 is served', '{}')")
    report = run_adapt(options, tmp_path / "run", {}, Progress())
    assert [event["text"] for event in report["adapt"]["events"]] == ["v0009 is served"]


def test_two_at_once_are_not_let_into_one_folder(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    refused: list[UsageError] = []

    def second(answers: int) -> list[Any]:
        with pytest.raises(UsageError, match="another process measures into") as error:
            run_adapt(options, tmp_path / "run", {}, Progress())
        refused.append(error.value)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tide_cli.bench.adapt.send", lambda *_, **__: second(0))
        with pytest.raises(KeyboardInterrupt):
            run_adapt(options, tmp_path / "run", {}, Progress())
    assert len(refused) == 1
    assert run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]["finished"]


@pytest.mark.parametrize("name", ["static", "tide", "policy.half"])
def test_what_a_user_has_in_the_folder_stays(options: AdaptOptions, tmp_path: Path, world: World, name: str) -> None:
    mine = tmp_path / "run" / name / "mine.html"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=f"holds {name} already"):
        run_adapt(options, tmp_path / "run", {}, Progress())
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == [mine]
    assert world.journal == []


def test_a_run_that_was_killed_before_its_first_line_begins_anew(
    options: AdaptOptions, tmp_path: Path, world: World
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.jsonl").touch()
    assert run_adapt(options, tmp_path / "run", {}, Progress())["adapt"]["finished"]


def test_another_machine_on_the_way_is_told(options: AdaptOptions, tmp_path: Path, world: World) -> None:
    world.answers_left = 9
    with pytest.raises(KeyboardInterrupt):
        run_adapt(options, tmp_path / "run", {"cpu": "old"}, Progress())
    world.answers_left, told = 10**9, Told()
    for _ in range(2):  # what is finished does not change any more
        report = run_adapt(options, tmp_path / "run", {"cpu": "new"}, told)
        assert report["environment"]["cpu"] == "old"
        assert report["adapt"]["changed_conditions"] == ["processor: old before, new after"]
    assert told.lines[0] == "begun under other conditions: processor: old before, new after"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"order": ("mixed",), "mixed": 4}, "can be called 'mixed'"),
        ({"order": ("general traffic",)}, "can be called 'general traffic'"),
        ({"order": ("general",)}, "can be called 'general'"),
        ({"general": ("chat", "chat")}, "names a domain twice"),
    ],
)
def test_names_that_a_report_could_not_tell_apart(options: AdaptOptions, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Script.of(AdaptOptions(**{**vars(options), **more}))


@pytest.mark.parametrize(
    ("guard", "unmet"),
    [
        ("ratio>=1", []),
        ("code:tide_al>=4.1", ["code, 1 at a time"]),
        ("tide_to_plain<1", ["code, 1 at a time", "sql, 1 at a time", "general traffic, 1 at a time"]),
        ("errors<=0", []),
    ],
)
def test_guards(
    options: AdaptOptions,
    tmp_path: Path,
    world: World,
    capsys: pytest.CaptureFixture[str],
    guard: str,
    unmet: list[str],
) -> None:
    few = ["--requests", "4", "--piece", "2", "--held-out", "2", "--general-requests", "4", "--rounds", "1"]
    few += ["--concurrency", "1", "--general", "chat", "--domains", "code,sql", "--html", str(tmp_path / "page.html")]
    with pytest.raises(SystemExit) as end:
        main(["bench", "adapt", "--workload", str(options.workload), *few, "--guard", guard, "--json"])
    printed = capsys.readouterr()
    assert end.value.code == (1 if unmet else 0)
    findings = json.loads(printed.out)["adapt"]["guards"]
    assert [one["where"] for one in findings if not one["met"]] == unmet
    assert all(f"{guard} is not met by {place}" in printed.err for place in unmet)
    met = len(findings) - len(unmet)
    assert f"{met} of {len(findings)} guards are met." in (tmp_path / "page.html").read_text()


def test_a_guard_speaks_of_general_traffic_by_its_name() -> None:
    adapt = {
        "domains": {"code": {"at": {"4": {"requests": 8, "errors": 0, "ratio": 1.2}}}},
        "general": {"at": {"4": {"requests": 8, "errors": 0, "ratio": 0.9}}},
    }
    found = judge_adapt([parse_guard("general:ratio>=0.95")], adapt)
    assert [(one.where, one.met) for one in found] == [("general traffic, 4 at a time", False)]


def test_a_failed_request_meets_no_guard() -> None:
    figures = {"rounds": 1, "requests": 8, "errors": 1, "ratio": 1.2}
    adapt = {"domains": {"code": {"at": {"4": figures, "1": figures | {"errors": 0}}}}}
    (four, one) = judge_adapt([parse_guard("ratio>=1.1")], adapt)
    assert (four.met, four.failed, one.met) == (False, "1 of 8 requests of code failed", True)
    allowed = judge_adapt([parse_guard("ratio>=1.1"), parse_guard("errors<=1")], adapt)
    assert all(finding.met for finding in allowed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no domain is named"),
        (["--domains", "code", "--guard", "ratio"], "is not a guard"),
        (["--domains", "code", "--guard", "sql:ratio>=1"], "sql is not measured"),
        (["--domains", "code", "--guard", "general:ratio>=1"], "general is not measured"),
        (["--domains", "code", "--guard", "tide_tok_s>=1.1x"], "is compared under a name of its own"),
        (["--domains", "code", "--guard", "policy_al>=1"], "--with-policy measures it"),
        (["--domains", "code", "--no-plain", "--guard", "tide_to_plain>=1"], "--no-plain leaves it out"),
        (["--domains", "code", "--guard", "gain>=0.1"], "there is no figure gain"),
        (["--domains", "code,"], "--domains: 'code,' names no domains"),
        (["--domains", "code", "--order", "sql,code"], "--domains and --order name different domains"),
        (["--domains", "../code"], "names no domains"),
        (["--domains", "code", "--measure-at", "4,x"], "--measure-at '4,x' is not a list of whole numbers"),
        (["--domains", "code", "--concurrency", "4,0"], "--concurrency '4,0' is not a list of whole numbers"),
        (["--domains", "code", "--concurrency", "1,4", "--requests", "8"], "not every phase has a piece for each"),
        (["--domains", "code", "--concurrency", "1,4", "--mixed", "8"], "not every phase has a piece for each"),
        (["--domains", "code", "--speed", "2"], "--speed has no effect"),
        (["--domains", "code", "--trace", "absent.csv"], "cannot read the trace"),
        (["--domains", "code", "--trace", "t.csv", "--speed", "0"], "--speed 0.0 is not accepted"),
        (["--domains", "code", "--trace", "t.csv", "--concurrency", "1,4"], "--trace and several concurrencies"),
        (["--domains", "code", "--speculation", "off"], "leaves nothing to adapt"),
        (["--domains", "code", "--speculation", "auto", "--with-policy"], "--with-policy adds nothing"),
        (["--domains", "code", "--html", "/dev/null/report.html"], "cannot write /dev/null/report.html"),
        (["--domains", "code", "--requests", "100000000000"], "it takes numbers up to 100000"),
        (["--domains", "code", "--mixed", "100000000000"], "it takes numbers up to 100000"),
        (["--domains", "cobol"], "has no cobol.jsonl"),
        (["--domains", "code", "--held-out", "9"], "the domain code has 12 different prompts"),
        (["--domains", "code", "--dtype", "float8"], "'float8' is not accepted"),
    ],
)
def test_refusals(
    options: AdaptOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as end:
        main(["bench", "adapt", "--workload", str(options.workload), "--folder", str(folder), *arguments])
    assert end.value.code == 2
    assert words in capsys.readouterr().err
    assert not folder.exists()
