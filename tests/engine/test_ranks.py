"""Ranks of one engine take the same number of draft steps and the same draft, whatever befalls one of them alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.multiprocessing
from test_swap import an_engine, ask, assert_served, begin_to_prepare, fail_half_way, prepare, wait_for_reader


def rank(number: int, folder: str, names: list[str]) -> None:
    """One process: what each of `names` finds there is written into `folder`."""
    import torch.distributed as dist
    from sglang.srt.runtime_context import get_parallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=number, world_size=2)
    group = SimpleNamespace(ranks=[0, 1], cpu_group=dist.group.WORLD)
    with get_parallel().override(tp_rank=number, tp_size=2, tp_group=group):
        found = {name: globals()[name](number, Path(folder, f"{name}-{number}")) for name in names}
    Path(folder, str(number)).write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def on_both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable], list]:
    """What a function of FOUND_BY_RANKS returned on either rank; all run in one pair of processes, one after another,
    for most of the time is their imports."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(rank, (str(folder), [what.__name__ for what in FOUND_BY_RANKS]), nprocs=2)
    found = [json.loads((folder / name).read_text()) for name in "01"]
    return lambda what: [by_name[what.__name__] for by_name in found]


def steps_taken(number: int, folder: Path) -> list[int]:
    from tide_cli.engine.plugin.ranks import agreed

    return [agreed(steps) for steps in ([0, 3, 1] if number == 0 else [2, 2, 2])]


def drafts_served(number: int, folder: Path) -> list[str | None]:
    """Why each of three swaps was refused: rank 1 cannot read the draft, cannot take it, and then can."""
    from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected

    from tide_cli.engine.plugin.ranks import on_all_ranks

    folder.mkdir()
    engine = an_engine(folder, everywhere=on_all_ranks)
    weights = engine.store.path(1) / "model.safetensors"
    hidden = weights.with_suffix(".hidden")
    refusals = []
    if number == 1:
        weights.rename(hidden)
    try:
        ask(engine, 1)
    except UpdateRejected:
        refusals.append(engine.swap.state()["refusal"])
    assert_served(engine, 0)
    if number == 1:
        hidden.rename(weights)
        fail_half_way(engine)
    ask(engine, 1)
    refusals.append(engine.swap.state()["refusal"])
    assert_served(engine, 0)
    ask(engine, 1)
    assert_served(engine, 1)
    return [*refusals, engine.swap.state()["refusal"]]


def drafts_prepared(number: int, folder: Path) -> list[dict[str, object]]:
    """States: rank 1 cannot read the draft; rank 0 has it, rank 1 still reads; both have it, and it is served."""
    from tide_cli.engine.plugin.ranks import on_all_ranks

    folder.mkdir()
    engine = an_engine(folder, everywhere=on_all_ranks)
    weights = engine.store.path(1) / "model.safetensors"
    kept, go_on = weights.read_bytes(), threading.Event()
    if number == 1:
        weights.write_bytes(b"spoilt")
    states = [prepare(engine, 1)]
    weights.write_bytes(kept)
    if number == 1:
        read = engine.swap._read
        engine.swap._read = lambda version: (go_on.wait(60), read(version))[1]
    begin_to_prepare(engine, 1)
    if number == 0:
        wait_for_reader()
    states.append(engine.swap.state())
    go_on.set()
    wait_for_reader()
    states.append(engine.swap.state())
    weights.unlink()  # what was prepared is not read again
    ask(engine, 1)
    assert_served(engine, 1)
    return [*states, engine.swap.state()]


def several_keys_at_once(number: int, folder: Path) -> list[bool]:
    """What the engine says to requests that name a key of the capture, which rank 0 alone has, beside others."""
    from sglang.srt.managers.io_struct import SetInternalStateReq
    from sglang.srt.managers.scheduler_components.internal_state import SchedulerInternalStateController
    from test_capture import Scheduler

    from tide_cli.engine.plugin.install import _Parts
    from tide_cli.engine.plugin.ranks import on_all_ranks

    folder.mkdir()
    engine = an_engine(folder, everywhere=on_all_ranks)
    parts = _Parts(SimpleNamespace(capture=True))
    parts.swap, parts.speculation = engine.swap, SimpleNamespace(update_handlers=dict)
    if number == 0:
        parts.capture = Scheduler(folder / "spool").capture

    class Controller(SchedulerInternalStateController):
        def _update_handlers(self) -> dict:
            return parts.after_update_handlers(super()._update_handlers(), self)

    def asked(**values: float) -> bool:
        return Controller(None, False).set_internal_state(SetInternalStateReq(server_args=values)).updated

    answers = [asked(tide_erase=1, tide_draft=1)]
    assert_served(engine, 1)
    for value in (float("nan"), float("inf")):
        answers += [asked(tide_erase=value), asked(tide_prepare=value), asked(tide_draft=value)]
    if number == 0:
        parts.capture._write_next()
        parts.capture._failure = "disk gone"
    answers.append(asked(tide_erase=2, tide_draft=0))
    assert_served(engine, 0)
    if number == 0:
        written = [json.loads((folder / f"spool/erase-{asked}.done.json").read_text())["error"] for asked in (1, 2)]
        assert "no request to erase" in written[0]
        assert written[1] == "capture has stopped"
    return answers


FOUND_BY_RANKS = (steps_taken, drafts_served, drafts_prepared, several_keys_at_once)


def test_every_rank_takes_the_first_ones_number(on_both) -> None:
    assert on_both(steps_taken) == [[0, 3, 1]] * 2


def test_a_draft_is_served_by_all_ranks_or_by_none(on_both) -> None:
    first, second = on_both(drafts_served)
    assert [words and "another rank" in words for words in first] == [True, True, None]
    assert "model.safetensors" in second[0]
    assert "the device is gone" in second[1]
    assert second[2] is None


def test_a_draft_is_prepared_on_all_ranks_or_refused_by_all(on_both) -> None:
    first, second = on_both(drafts_prepared)
    assert [state["prepared"] for state in first] == [state["prepared"] for state in second] == [None, None, 1, None]
    assert "another rank" in first[0]["refusal"]
    assert "model.safetensors" in second[0]["refusal"]
    assert [state["refusal"] for state in first[1:] + second[1:]] == [None] * 6
    assert [state["draft_version"] for state in first] == [0, 0, 0, 1]


def test_a_request_with_several_keys_is_taken_by_all_ranks_or_by_none(on_both) -> None:
    assert on_both(several_keys_at_once) == [[True, *[False] * 6, True]] * 2
