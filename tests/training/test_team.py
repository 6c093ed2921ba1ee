"""Several processes that train together: the same as one, and an end where one of them is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from tiny_target import Target, fill_spool
from worker_process import Worker

from tide_cli.spool.erase import Which, erase_offline
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.reservoir import RESERVOIR_FOLDER, kept_samples
from tide_cli.training.config import TrainingConfig
from tide_cli.training.cycle import Cycles
from tide_cli.training.exchange import Begin, Failed
from tide_cli.training.material import Material
from tide_cli.training.record import CycleRecord
from tide_cli.training.replay import replay
from tide_cli.training.state import read_progress
from tide_cli.training.team import Alone, Team
from tide_cli.training.trainer import DraftTrainer
from tide_cli.training.worker import NoMemoryError, TeamError

# Sums in another order; the rounding of one step goes through all that follow.
LOSSES, WEIGHTS = 1e-4, 1e-3
_BFLOAT16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


@pytest.fixture
def spooled(target: Target, config: TrainingConfig, day_zero: Path) -> TrainingConfig:
    """Two processes, and a spool of samples of various lengths."""
    config.state.mkdir(parents=True, exist_ok=True)
    fill_spool(config, target.samples(24), held_out_share=0.0)
    return replace(config, processes=2, process_timeout=250.0)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both processes compute in float32, as on a CPU that does not multiply bfloat16."""
    lines = ["import torch", *(f"torch.cpu.{name} = lambda: False" for name in _BFLOAT16)]
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    for name in _BFLOAT16:
        monkeypatch.setattr(torch.cpu, name, lambda: False)


def differences(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((first[name].float() - second[name].float()).abs().max()) for name in first)


def out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def other_vocabulary(trainer: DraftTrainer) -> None:
    """Ten tokens give way to ten others."""
    ids = trainer.vocabulary
    outside = torch.tensor(sorted(set(range(300)) - set(ids.tolist())))
    trainer.change_vocabulary(torch.cat([ids[10:], outside[:10]]).sort().values)


def only_helper() -> psutil.Process:
    """Earlier tests of this process may have left other children, ended ones among them."""
    children = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    (helper,) = [one for one in children if "helper" in one.cmdline()]
    return helper


def test_two_processes_learn_what_one_learns_until_one_hangs(
    exact: None, spooled: TrainingConfig, day_zero: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of other sizes and lengths, one that is empty, then another vocabulary, and a sample that is gone; then
    one process has too little memory for its share."""
    refs = Material(spooled).training()[0]
    gone = refs[5]
    cycle = [[refs[:4], refs[4:7]], [refs[7:8], refs[8:14]], [refs[14:17]]] * 5
    alone, one = Alone(), DraftTrainer(spooled, day_zero)
    wanted = [alone.step(one, [[ref for batch in batches for ref in batch]]) for batches in cycle]
    halfway = one.tensors()
    other_vocabulary(one)
    wanted += [alone.step(one, [[ref for batch in batches for ref in batch if ref is not gone]]) for batches in cycle]

    trainer = DraftTrainer(spooled, day_zero)
    team = Team(spooled, day_zero, lambda refs: None)
    try:
        team.meet()
        team.begin(trainer)
        taken = [team.step(trainer, batches) for batches in cycle]
        worst = [differences(trainer.tensors(), halfway)]
        other_vocabulary(trainer)
        erase_offline(spooled.spool, Which(ids=(gone.info.id,)))
        team.begin(trainer)
        taken += [team.step(trainer, batches) for batches in cycle]
        worst.append(differences(trainer.tensors(), one.tensors()))
        assert team.step(trainer, [[gone], [gone]]) is None
        with monkeypatch.context() as patch:
            patch.setattr(trainer, "gradient", out_of_memory)
            with pytest.raises(NoMemoryError, match="a training step was left out"):
                team.step(trainer, cycle[0])
        assert worst[1] == differences(trainer.tensors(), one.tensors())  # and the helper waits for the next step
        together, single = ([step.loss for step, _ in steps] for steps in (taken, wanted))
        of_losses = max(abs(a / b - 1) for a, b in zip(together, single, strict=True))
        print(f"largest difference of a loss: {of_losses:.1e}, of a weight: {max(worst):.1e}")
        assert trainer.compute_dtype == torch.float32
        assert together == pytest.approx(single, rel=LOSSES)
        assert max(worst) < WEIGHTS
        assert [step.tokens for step, _ in taken] == [step.tokens for step, _ in wanted]
        assert [[[info for share in read for info in share]] for _, read in taken] == [read for _, read in wanted]

        helper = only_helper()
        helper.suspend()
        team._config = replace(spooled, process_timeout=1.0)
        with pytest.raises(TeamError, match=rf"training process 2 of 2 \(pid {helper.pid}\) did not answer within 1 s"):
            team.step(trainer, cycle[0])
    finally:
        team.close()


def test_a_cycle_of_two_processes_and_the_end_of_one(
    spooled: TrainingConfig, start: Callable[[TrainingConfig], Worker]
) -> None:
    """The real process: its cycle can be run again by one process; in the next one its helper is killed."""
    config = replace(spooled, cycle_seconds=3600.0)
    worker = start(config)
    worker.until("ready")
    (helper,) = psutil.Process(worker.process.pid).children()
    assert os.getpgid(helper.pid) == os.getpgid(worker.process.pid)
    worker.send(cmd="train", served=0)
    worker.until("progress")
    worker.send(cmd="cancel")
    worker.until("cycle_end")
    record = CycleRecord.read(config.state, 1)
    assert max(len(step) for step in record.steps) > 4  # of a batch of 128 tokens and samples of 27 and more
    found = replay(config, record, None, lambda done, total: None)
    assert found["same"]
    assert found["loss_difference"] == 0.0
    lengths = {info.id: info.tokens for info in SpoolReader.open(config.spool).samples()}
    progress = read_progress(config.state)
    assert progress is not None
    assert progress.tokens == sum(lengths[number] for step in record.steps for number, _ in step)
    # what the helper has read is old one day as well
    kept = {one.info.id for one in kept_samples(config.spool / RESERVOIR_FOLDER)}
    assert {number for step in record.steps for number, _ in step} <= kept

    worker.send(cmd="train", served=0)
    worker.until("progress")
    helper.kill()
    with pytest.raises(AssertionError, match=rf"training process 2 of 2 \(pid {helper.pid}\) has ended \(SIGKILL\)"):
        worker.until("cycle_end")
    assert worker.process.wait(60) == 1


def test_an_end_or_an_error_of_another_process_is_noticed_while_the_worker_waits_for_it(
    spooled: TrainingConfig, day_zero: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In joining, which nothing else bounds, and in a collective that the other one does not enter."""
    never = threading.Event()
    monkeypatch.setattr("tide_cli.training.team.join", lambda *_: never.wait(30))
    team = Team(replace(spooled, process_timeout=10.0), day_zero, lambda refs: None)
    helper = only_helper()
    try:
        ours, theirs = Pipe()
        with ours, theirs, monkeypatch.context() as patch:
            patch.setattr(team._helpers[0], "_pipe", ours)
            theirs.send(Failed("its disk is gone"))
            with pytest.raises(TeamError) as failed:
                team._finish([SimpleNamespace(is_completed=lambda: never.wait(1), wait=lambda: None)])
        assert failed.value.why == "its disk is gone"
        monkeypatch.setattr(team, "_answers", helper.kill)
        with pytest.raises(TeamError, match=rf"training process 2 of 2 \(pid {helper.pid}\) has ended \(SIGKILL\)"):
            team.meet()
    finally:
        never.set()
        team.close()


def test_a_helper_that_fails_says_why_and_ends_at_once(spooled: TrainingConfig, day_zero: Path, tmp_path: Path) -> None:
    """Whatever would hold an orderly end."""
    code = """
import atexit, sys, time
from tide_cli.training.helper import run
atexit.register(time.sleep, 60)
sys.exit(run(1, int(sys.argv[1])))
"""
    ours, theirs = Pipe()
    with theirs:
        helper = subprocess.Popen([sys.executable, "-c", code, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    with ours:
        ours.send(Begin(replace(spooled, target=tmp_path / "nothing"), day_zero, tmp_path / "store"))
        said = ours.recv()
    assert isinstance(said, Failed)
    assert "nothing" in said.why
    assert helper.wait(20) == 1


def test_batches_that_the_memory_does_not_do_for_are_left_out(
    spooled: TrainingConfig, day_zero: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cycle goes on with the others; where none is left it ends with the reason."""
    events: list[dict] = []
    cycles = Cycles(replace(spooled, processes=1, cycle_seconds=0.0), events.append, lambda: None)
    step, calls = cycles.team.step, []

    def sometimes(trainer, batches):
        calls.append(batches)
        if len(calls) == 1:
            raise NoMemoryError("a training step was left out")
        return step(trainer, batches)

    monkeypatch.setattr(cycles.team, "step", sometimes)
    cycles.run(0)
    assert events[-1]["event"] == "cycle_end"
    assert "a training step was left out" in capfd.readouterr().out

    def never(trainer, batches):
        raise NoMemoryError("a training step was left out", remedy="lower batch_tokens")

    monkeypatch.setattr(cycles.team, "step", never)
    with pytest.raises(NoMemoryError):
        cycles.run(0)
