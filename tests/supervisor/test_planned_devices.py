"""What the supervisor makes of a plan, for machines that are not this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted import scripted_settings

from tide_cli.errors import TideError, UsageError
from tide_cli.hardware.inventory import Gpu, Inventory, NumaNode
from tide_cli.supervisor import appliance, own_machine, specs
from tide_cli.supervisor.messages import ENGINE, TARGET, TRAINER
from tide_cli.supervisor.run import Supervisor

SHAPE = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}


def machine(gpus: int = 0, gib: int = 80, memory: int = 64) -> Inventory:
    found = tuple(Gpu(index, "some GPU", gib * 2**30, (9, 0)) for index in range(gpus))
    return Inventory((NumaNode(0, (0, 1), memory * 2**30, memory * 2**30),), found)


def workshop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inventory: Inventory, **chosen: object) -> specs.Workshop:
    """As a start on `inventory` would have it."""
    for module in (appliance, specs):
        monkeypatch.setattr(module, "own_inventory", lambda paths: inventory)
    made = appliance.check_settings(scripted_settings(tmp_path, 31_997, **chosen))
    for folder in (made.paths.run, made.paths.logs):
        folder.mkdir(parents=True)
    return made


def fetched(made: specs.Workshop, tmp_path: Path) -> None:
    """The target step has been here."""
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "config.json").write_text(json.dumps(SHAPE))
    (tmp_path / "snapshot" / "model.safetensors").write_bytes(bytes(1000))
    (made.paths.logs / f"{TARGET}.log").write_text(f"folder {tmp_path / 'snapshot'}\n")


def test_no_trainer_is_started_where_none_has_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = workshop(monkeypatch, tmp_path, machine(memory=4), target="smollm2-135m", spool_size=2**27)
    assert made.settings.training
    supervisor = Supervisor(made, engine=None, in_place=lambda: True, on_event=lambda event: None)
    assert ENGINE in supervisor.core.children
    assert TRAINER not in supervisor.core.children


def test_children_see_their_own_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = workshop(monkeypatch, tmp_path, machine(gpus=2), target="someone/some-model")
    fetched(made, tmp_path)
    seen = {child: made.spec(child, 0).env["CUDA_VISIBLE_DEVICES"] for child in (ENGINE, TRAINER)}
    assert seen == {ENGINE: "0", TRAINER: "1"}


@pytest.mark.parametrize(("gpus", "begins_on"), [(0, (0, 1)), (2, ())])
def test_without_a_gpu_the_engine_begins_on_the_trainers_cores_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int, begins_on: tuple[int, ...]
) -> None:
    made = workshop(monkeypatch, tmp_path, machine(gpus), target="someone/some-model")
    fetched(made, tmp_path)
    spec = made.spec(ENGINE, 0)
    assert (spec.cores, spec.start_cores) == ((0,), begins_on)
    assert spec.env["OMP_NUM_THREADS"] == "1"


def test_an_unknown_target_is_planned_again_once_it_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = workshop(monkeypatch, tmp_path, machine(gpus=1), target="someone/some-model")
    assert made.plan.memory == ()
    fetched(made, tmp_path)
    argv = made.spec(ENGINE, 0).argv
    assert made.plan.memory != ()
    assert argv[argv.index("--max-total-tokens") + 1] == str(made.plan.max_total_tokens)


def test_an_unknown_target_that_leaves_no_room_for_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The supervisor has been told that there is a trainer: it cannot silently go without.

    Of 5,120 MiB the engine takes 5,058 without weights worth mentioning: 3,712 of activations (512, 1.5 for each of
    2,048 tokens, 128), 160 and 672 of graphs (ten sets for eight requests, 2 * 42 of prefill), 512 for the driver and 2
    of captured states. The trainer's driver alone wants 512, and there is no main memory.
    """
    made = workshop(monkeypatch, tmp_path, machine(gpus=1, gib=5, memory=0), target="someone/some-model")
    assert made.plan.train is not None
    fetched(made, tmp_path)
    with pytest.raises(TideError) as refused:
        made.spec(ENGINE, 0)
    assert "adaptation is off" in refused.value.lines()[0]
    assert "--no-training" in refused.value.lines()[1]


def test_own_processes_are_only_looked_for_where_gpus_are_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inventory = machine(gpus=1)
    monkeypatch.setattr(own_machine, "take_inventory", lambda: inventory)
    settings = scripted_settings(tmp_path, 31_997)
    assert own_machine.own_inventory(settings.paths) is inventory


def test_old_samples_get_room_by_the_ring_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(specs, "free_disk", lambda folder: 40 * 2**30)
    made = workshop(monkeypatch, tmp_path, machine(gpus=1), target="someone/some-model", spool_size=None)
    fetched(made, tmp_path)

    def told() -> int:
        made.spec(TRAINER, 0)
        return json.loads((made.paths.run / "training.json").read_text())["reservoir_size"]

    assert told() == 240 * 1024 * (8 * SHAPE["hidden_size"] + 12)  # an eighth of 4 GiB is more
    made.paths.spool.mkdir(parents=True)
    (made.paths.spool / "ring.bin").write_bytes(bytes(2**16))
    assert told() == 2**13
    made.settings = made.settings.model_copy(update={"reservoir_size": 2**20})
    assert told() == 2**20


def test_a_process_for_each_training_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = workshop(monkeypatch, tmp_path, machine(gpus=4), target="someone/some-model", train_gpus="3,1")
    fetched(made, tmp_path)
    spec = made.spec(TRAINER, 0)
    told = json.loads((made.paths.run / "training.json").read_text())
    assert (told["processes"], told["threads"]) == (2, max(1, len(made.plan.train.cores) // 2))
    assert told["process_timeout"] < made.settings.train_hang_timeout
    assert spec.env["CUDA_VISIBLE_DEVICES"] == "3,1"


def test_a_trainer_that_shares_a_gpu_is_told_its_part_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = workshop(monkeypatch, tmp_path, machine(gpus=1), target="someone/some-model", serve_gpus="0", train_gpus="0")
    fetched(made, tmp_path)
    made.spec(TRAINER, 0)
    told = json.loads((made.paths.run / "training.json").read_text())
    assert told["memory"] == made.plan.shared_memory


def test_a_spool_without_room_for_a_sample_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    least = 24_576 + 128 * (128 + 16 * (8 * 576 + 12))  # 2,048 tokens are 128 pages
    settings = scripted_settings(tmp_path, 31_997, target="smollm2-135m", spool_size=least - 1)
    for check in (appliance.check_settings, appliance.check_machine):
        with pytest.raises(UsageError) as refused:
            check(settings)
        assert refused.value.lines()[0].endswith(f"one sample of 2048 tokens takes {least:,} bytes")
        assert refused.value.remedy.startswith("--spool-size 10MiB ")
        check(settings.model_copy(update={"capture": False}))
        check(settings.model_copy(update={"spool_size": least}))
    assert not settings.paths.state.exists()


def test_a_ring_that_cannot_be_used_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = scripted_settings(tmp_path, 31_997, target="smollm2-135m", spool_size=None)
    ring = settings.paths.spool / "ring.bin"
    ring.parent.mkdir(parents=True)
    ring.write_bytes(bytes(4096))
    with pytest.raises(TideError, match=str(settings.paths.spool)):
        appliance.check_settings(settings)
    ring.unlink()
    # a tenth of what is free holds no sample, though logs and drafts would find room
    monkeypatch.setattr(specs, "free_disk", lambda folder: 90 * 2**20)
    with pytest.raises(TideError, match="is too small"):
        appliance.check_settings(settings)


def test_a_disk_must_hold_the_ring_and_the_old_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = 240 * 1024 * (8 * 576 + 12)
    free = 2**29 + 2**40 + kept
    monkeypatch.setattr(appliance, "free_disk", lambda folder: free - 1)
    chosen = {"target": "smollm2-135m", "spool_size": 2**40}
    with pytest.raises(TideError, match="iB are free") as refused:
        workshop(monkeypatch, tmp_path, machine(), **chosen)
    assert refused.value.why == "an appliance needs 512.0 MiB, its spool 1.0 TiB, old samples 1.1 GiB"
    assert appliance.check_settings(scripted_settings(tmp_path, 31_997, training=False, **chosen))
    monkeypatch.setattr(appliance, "free_disk", lambda folder: free)
    assert workshop(monkeypatch, tmp_path, machine(), **chosen)
