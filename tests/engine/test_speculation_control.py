"""The policy in SGLang's place, round by round, with made-up rounds and a clock that is turned by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected
from sglang.srt.runtime_context import get_parallel

from tide_cli.adaptation.speculation import RoundSeconds, SpeculationRules, SpeculationState, choose
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.profile import Conditions, load_profile
from tide_cli.engine.plugin.speculation import SpeculationControl
from tide_cli.supervisor.speculating import SpeculationNews

CONDITIONS = Conditions("t", "some processor x1", "float32", "0.5.23")


@pytest.fixture(autouse=True)
def _one_rank():
    with get_parallel().override(tp_size=1, tp_rank=0):
        yield


class Engine:
    """Rounds whose cost and acceptance are known: `costs[steps]` per request, each proposal right with `rate`."""

    def __init__(self, folder: Path, rate: float, costs: list[float], lag: int = 0, adaptive: bool = True) -> None:
        self.config = EngineConfig(
            speculation=True, capture=False, cores=(0,), run="r", target="t", hidden_size=8, spool=folder, spool_size=0,
            max_sample_tokens=1, held_out_share=0.2, retention_hours=None, capture_sample_rate=1.0,
            drafts=folder, served_version=0, max_running_requests=8,
            draft_steps=3, adaptive=adaptive, speculation_margin=0.02, profiles=folder / "profiles",
        )  # fmt: skip
        self.rate, self.costs, self.lag = rate, costs, lag
        self.time, self.version, self.random = 0.0, 0, random.Random(0)
        self.waiting: list[float] = []
        self.control = SpeculationControl(self.config, CONDITIONS, clock=lambda: self.time, lag=lag, version=0)

    def round(self, batch: int = 1, rid: str = "r") -> int:
        steps = self.control.get_steps_for_batch(batch)
        # a scheduler that launches ahead waits, after each launch, for the round before
        self.waiting.append(self.costs[steps] * (1 + batch / 10))
        if len(self.waiting) > self.lag:
            self.time += self.waiting.pop(0)
        correct = []
        for _ in range(batch):
            right = 0
            while right < steps and self.random.random() < self.rate:
                right += 1
            correct.append(right)
        result = SimpleNamespace(speculative_num_draft_tokens=steps + 1, num_correct_drafts_per_req_cpu=correct)
        self.control.after_result([SimpleNamespace(rid=rid)] * batch, result, self.version)
        return steps

    def measure(self) -> None:
        self.control.clock.measure(1)
        for batch in (1, 2, 4, 8):
            self.control.before_prefill([])
            for _ in range(40):
                self.round(batch, "tide-profile-0")
        self.control.clock.measure(0)

    def most_of(self, rounds: int, batch: int = 1) -> int:
        taken = [self.round(batch) for _ in range(rounds)]
        return max(set(taken), key=taken.count)


CHEAP = [0.050, 0.052, 0.054, 0.056]
DEAR = [0.050, 0.090, 0.130, 0.170]


@pytest.mark.parametrize("lag", [0, 1])
def test_a_measurement_sees_what_rounds_cost(tmp_path: Path, lag: int) -> None:
    engine = Engine(tmp_path, 0.5, DEAR, lag)
    engine.measure()
    kept = load_profile(tmp_path / "profiles", CONDITIONS, most_steps=3)
    assert Path(engine.control.state()["profile"]["file"]).parent == tmp_path / "profiles"
    assert Path(engine.control.state()["profile"]["file"]).is_file()
    assert kept is not None
    for (batch, steps), seconds in kept.cells.items():
        assert seconds == pytest.approx(DEAR[steps] * (1 + batch / 10))
    assert engine.control.state()["acceptance"] == [0.5, 0.5, 0.5]  # TIDE's own requests say nothing about traffic


def test_a_measurement_that_cannot_be_written_counts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "profiles").write_text("in the way")
    engine = Engine(tmp_path, 0.5, DEAR)
    engine.measure()
    assert engine.most_of(200) == 0
    profile = engine.control.state()["profile"]
    assert {row["batch"] for row in profile["rounds"]} == {1, 2, 4, 8}
    assert profile["file"] is None
    assert f"not kept in {tmp_path / 'profiles'}" in caplog.text
    (tmp_path / "profiles").unlink()
    engine.measure()
    assert Path(engine.control.state()["profile"]["file"]).is_file()


def test_batch_sizes_without_rounds_keep_their_former_figures(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.5, CHEAP)
    engine.measure()
    engine.costs = DEAR
    engine.control.clock.measure(1)
    for _ in range(40):
        engine.round(6)
    engine.control.clock.measure(0)
    kept = load_profile(tmp_path / "profiles", CONDITIONS, most_steps=3)
    assert kept is not None
    assert kept.kept == (1, 2, 4, 8)
    assert kept.cells[4, 2] == pytest.approx(CHEAP[2] * 1.4)
    assert kept.cells[6, 2] == pytest.approx(DEAR[2] * 1.6)
    assert engine.control.clock.times is not None
    assert engine.control.clock.times.cells == kept.cells
    engine.measure()
    assert engine.control.state()["profile"]["kept"] == []
    assert {row["batch"] for row in engine.control.state()["profile"]["rounds"]} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("rate", "costs", "steps"), [(0.7, CHEAP, 3), (0.02, CHEAP, 0), (0.7, DEAR, 0), (0.05, DEAR, 0)]
)
def test_the_steps_that_pay_are_taken(tmp_path: Path, rate: float, costs: list[float], steps: int) -> None:
    engine = Engine(tmp_path, rate, costs)
    engine.measure()
    engine.most_of(200)
    assert engine.most_of(200) == steps
    state = engine.control.state()
    assert state["steps"] == steps
    assert state["reason"]


@pytest.mark.parametrize(("rate", "costs"), [(0.7, CHEAP), (0.02, CHEAP), (0.7, DEAR)])
def test_what_the_event_holds_gives_the_decision_again(tmp_path: Path, rate: float, costs: list[float]) -> None:
    engine, news = Engine(tmp_path, rate, costs), SpeculationNews()
    engine.measure()
    told = []
    for look in range(60):  # one every ten seconds, from rounds of changing size
        engine.most_of(20, batch=1 + look % 3)
        told += news.look({**engine.control.state(), "draft_version": 0}, 10.0 * look)
    assert told
    for note in json.loads(json.dumps([note.data for note in told])):
        decided = note["decided_from"]
        batch, seconds = decided["input"]["batch"], tuple(decided["input"]["seconds"])
        rules, state = SpeculationRules(**decided["rules"]), SpeculationState.from_json(decided["state"])
        assert choose(state, rules, RoundSeconds(seconds), batch)[0].steps == note["steps"]


def test_steps_that_were_asked_for_are_no_decision(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.7, CHEAP)
    engine.measure()
    engine.control.force(1)
    engine.most_of(20)
    assert engine.control.state()["decided_from"] is None


def test_a_decision_of_the_draft_before_is_not_told_of_the_one_served_now(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.7, CHEAP)
    engine.measure()
    engine.most_of(100)
    assert engine.control.state()["decided_from"] is not None
    engine.control.serves(0)  # it is
    assert engine.control.state()["decided_from"] is not None
    engine.control.serves(1)
    assert engine.control.state()["decided_from"] is None
    engine.version = 1
    engine.most_of(1)
    decided = engine.control.state()["decided_from"]
    assert not SpeculationState.from_json(decided["state"]).acceptance.known


def test_a_new_draft_gets_its_chance(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.02, CHEAP)
    engine.measure()
    assert engine.most_of(300) == 0
    engine.version, engine.rate = 1, 0.7
    engine.most_of(50)
    assert engine.most_of(100) == 3


def test_figures_are_of_the_served_draft_and_of_the_traffic(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.7, CHEAP)
    engine.measure()
    state = engine.control.state()
    assert (state["batch"], state["rounds"], state["speedup"]) == (1, {}, None)  # nobody has asked yet
    assert state["reason"] == "too few proposals of this draft were judged yet"
    engine.most_of(200, batch=2)
    state = engine.control.state()
    assert state["batch"] == 2
    assert state["speedup"] > 1
    assert "times the speed of plain decoding at batch size 2, with 7" in state["reason"]
    engine.control.serves(1)
    state = engine.control.state()
    assert (state["speedup"], state["reason"]) == (None, "too few proposals of this draft were judged yet")
    engine.control.force(0)
    assert engine.control.state()["speedup"] == 1.0  # whatever the draft is worth


def test_a_draft_that_gets_better_by_itself_is_noticed_by_the_probes(tmp_path: Path) -> None:
    """Traffic that returns to what the draft knows: no swap tells of it."""
    engine = Engine(tmp_path, 0.02, CHEAP)
    engine.measure()
    assert engine.most_of(300, batch=4) == 0
    engine.rate = 0.8
    engine.most_of(6000, batch=4)
    assert engine.most_of(200, batch=4) == 3


def test_before_a_measurement_and_when_forced_the_number_is_fixed(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.0, DEAR)
    assert {engine.round() for _ in range(50)} == {3}
    engine.measure()
    engine.control.force(2)
    assert {engine.round() for _ in range(50)} == {2}
    assert engine.control.state()["reason"] == "asked for"
    engine.control.force(-1)
    assert engine.most_of(50) == 0


def test_what_is_no_number_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.5, CHEAP)
    fixed = Engine(tmp_path, 0.5, CHEAP, adaptive=False).control.update_handlers()
    for key, handler in engine.control.update_handlers().items():
        handler.validate(key, 2.0)
        for value in (float("nan"), float("inf"), -float("inf")):
            with pytest.raises(UpdateRejected, match=f"{key}={value} refused: cannot convert"):
                handler.validate(key, value)
        with pytest.raises(UpdateRejected, match="the number of draft steps is fixed"):
            fixed[key].validate(key, 2.0)
    assert engine.round() == 3


def test_a_measurement_given_up_changes_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.5, CHEAP)
    engine.measure()
    before = engine.control.state()["profile"]
    engine.control.clock.measure(1)
    engine.round()
    engine.control.clock.measure(-1)
    assert engine.control.state()["profile"] == before
    assert not engine.control.state()["measuring"]


def test_a_request_knows_its_rounds_with_proposals_as_if_each_had_had_the_most(tmp_path: Path) -> None:
    engine, req = Engine(tmp_path, 0.5, CHEAP), SimpleNamespace(rid="tide-probe")  # its own rounds teach no rate
    for steps, right in ((3, 2), (0, 0), (1, 0), (3, 0), (2, 1)):
        result = SimpleNamespace(speculative_num_draft_tokens=steps + 1, num_correct_drafts_per_req_cpu=[right])
        engine.control.after_result([req], result, 0)
    assert req.tide_rounds == (4, 3)
    result = SimpleNamespace(speculative_num_draft_tokens=2, num_correct_drafts_per_req_cpu=[1])
    engine.control.after_result([req], result, 0)
    assert req.tide_rounds == (5, 3 + 1 + 0.5 + 0.5**2)  # the rate believed before any was seen is a half
    fixed = Engine(tmp_path, 0.5, CHEAP, adaptive=False)
    other = SimpleNamespace(rid="r")
    fixed.control.after_result([other], result, 0)
    assert not hasattr(other, "tide_rounds")  # SGLang's own counts are these


def test_counts_are_of_the_traffic_and_nothing_is_forgotten(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.5, CHEAP)
    for _ in range(1000):
        engine.round()
        engine.round(rid="tide-probe")
    state = engine.control.state()
    assert state["judged"][0] == 1000
    assert state["accepted"][0] / 1000 == pytest.approx(0.5, abs=0.05)
    assert state["judged"][1] == state["accepted"][0]


def test_a_round_after_a_prefill_is_not_timed(tmp_path: Path) -> None:
    engine = Engine(tmp_path, 0.5, CHEAP)
    engine.control.clock.measure(1)
    for _ in range(60):
        engine.round()
        engine.time += 5.0  # the prefill
        engine.control.before_prefill([])
    engine.control.clock.measure(0)
    assert engine.control.state()["profile"] is None


def test_what_the_parts_of_a_round_took_counts_where_the_round_does(tmp_path: Path) -> None:
    """Those of rounds that were cut short are left out: their medians would not be of the same rounds."""
    engine = Engine(tmp_path, 0.5, CHEAP)
    clock = engine.control.clock

    def verify(seconds: float) -> None:
        engine.time += seconds

    clock.measure(1)
    for _ in range(60):
        for seconds in (0.01, 0.01, 9.0):
            engine.round()
            clock.timed("verify", lambda seconds=seconds: verify(seconds))
        engine.control.before_prefill([])
    clock.measure(0)
    rounds = engine.control.state()["profile"]["rounds"]
    assert [row["verify"] for row in rounds] == pytest.approx([0.01] * len(rounds))
    assert all(row["seconds"] == pytest.approx(0.01 + CHEAP[row["steps"]] * 1.1) for row in rounds)
