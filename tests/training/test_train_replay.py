"""Cycles run again from their records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_target import Target, fill_spool, tiny_config

from tide_cli.cli.train_replay import _run
from tide_cli.errors import TideError
from tide_cli.spool.erase import Which, erase_offline
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, erase_kept
from tide_cli.training.config import TrainingConfig
from tide_cli.training.cycle import Cancelled, Cycles
from tide_cli.training.day_zero import publish_day_zero
from tide_cli.training.record import CycleRecord, recorded, state_file
from tide_cli.training.replay import replay

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trained(target: Target, tmp_path: Path) -> TrainingConfig:
    """Four cycles, of which the first begins from v0000 with another vocabulary; the last one was cancelled."""
    made = replace(
        tiny_config(target, tmp_path), state=tmp_path / "training", draft_vocab_size=200, vocab_coverage=0.97
    )
    config = replace(made, cycle_seconds=0.5)
    publish_day_zero(config)
    fill_spool(config, target.samples(16))
    steps: list[int] = []

    def check() -> None:
        if steps and len(steps) > 3:
            raise Cancelled
        if steps:
            steps.append(1)

    cycles = Cycles(config, lambda event: None, check)
    served = 0
    for _ in range(3):
        published = cycles.run(served)
        served = served if published is None else published
    steps.append(1)
    cycles.run(served)
    return config


def again(config: TrainingConfig, cycle: int, seed: int | None = None) -> dict[str, Any]:
    return replay(config, CycleRecord.read(config.state, cycle), seed, lambda done, total: None)


def test_a_cycle_comes_out_the_same_bit_for_bit(trained: TrainingConfig) -> None:
    assert recorded(trained.state) == [1, 2, 3, 4]
    records = [CycleRecord.read(trained.state, cycle) for cycle in (1, 2, 3, 4)]
    assert [record.start for record in records] == ["version", "state", "state", "state"]
    assert records[0].vocabulary
    for cycle in (1, 3):
        found = again(trained, cycle)
        assert (found["identical"], found["same"], found["loss_difference"]) == (True, True, 0)
        assert found["replayed"]["gate"].items() <= found["recorded"]["gate"].items()
        assert found["steps"] == len(records[cycle - 1].steps) > 0
    cancelled = again(trained, 4)
    assert (cancelled["same"], cancelled["identical"], cancelled["recorded"]["gate"]) == (True, None, None)
    other = again(trained, 1, seed=3)
    assert (other["same"], other["identical"], other["seed"]) == (None, None, 3)
    assert other["replayed"]["weights"] != other["recorded"]["weights"]

    # of the second cycle the weights it went on from are not kept any more
    assert not state_file(trained.state, 2).exists()
    with pytest.raises(TideError, match="cannot be run again") as caught:
        again(trained, 2)
    assert "newest cycles" in caught.value.why
    assert caught.value.remedy == "replay another one: 1, 3, 4"
    newest = CycleRecord.read(trained.state, 4)
    newest.newest = [(10**9, 1)]  # a sample that is not stored
    with pytest.raises(TideError, match="cannot be run again") as caught:
        replay(trained, newest, None, lambda done, total: None)
    assert caught.value.remedy == "replay another one: 1, 3"
    # a cycle that has lost a sample too is no way out, and neither is one whose version was removed
    third = CycleRecord.read(trained.state, 3)
    replace(third, old=[(10**9, 1)]).write(trained.state)
    replace(CycleRecord.read(trained.state, 4), served=77).write(trained.state)
    first = CycleRecord.read(trained.state, 1)
    first.newest = [(10**9, 1)]
    with pytest.raises(TideError, match="cannot be run again") as caught:
        replay(trained, first, None, lambda done, total: None)
    assert caught.value.remedy == "no recorded one can be; the next cycle can"
    third.write(trained.state)
    with pytest.raises(TideError, match="cannot be run again") as caught:
        replay(trained, first, None, lambda done, total: None)
    assert caught.value.remedy == "replay another one: 3"
    # a step more than was taken is another cycle
    record = CycleRecord.read(trained.state, 1)
    record.losses[-1] *= 1.01
    found = replay(trained, record, None, lambda done, total: None)
    assert (found["same"], found["identical"]) == (False, True)
    record.losses[-1] = 0.0  # nothing in a batch counted
    assert replay(trained, record, None, lambda done, total: None)["same"] is False


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("import os; os.kill(os.getpid(), 9)", "memory enough"), ("raise ValueError('no')", "another cycle")],
)
def test_a_replay_without_a_result_says_what_may_help(code: str, remedy: str) -> None:
    with pytest.raises(TideError, match="without a result") as caught:
        _run([sys.executable, "-c", code], os.environ, lambda done, total: None)
    assert remedy in caught.value.remedy


def test_the_command(trained: TrainingConfig) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tide_cli", "train", "replay", *map(str, arguments)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDE_")}
        environment |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
        where = ["--state-dir", str(trained.state.parent)]
        return subprocess.run([*command, *where], env=environment, capture_output=True, text=True, timeout=120)

    done = run(1)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "the same, bit for bit"
    path = trained.state / "cycles" / "000003.json"
    record = json.loads(path.read_text())
    assert {oct(part.stat().st_mode & 0o777) for part in (path, path.parent)} == {"0o600", "0o700"}
    path.write_text(json.dumps(record | {"losses": [loss * 2 for loss in record["losses"]]}))
    differs = run(3, "--json")
    assert differs.returncode == 1
    assert json.loads(differs.stdout)["same"] is False
    unknown = run(9)
    assert (unknown.returncode, "recorded: 1, 2, 3, 4" in unknown.stderr) == (1, True)
    which = Which(ids=(record["steps"][0][0][0],))
    erase_offline(trained.spool, which)
    erase_kept(trained.spool / RESERVOIR_FOLDER, which)
    gone = run(3)
    assert gone.returncode == 1
    assert "are no longer stored" in gone.stderr
    assert len(gone.stderr.splitlines()) == 2
