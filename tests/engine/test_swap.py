"""A swap as the scheduler sees it: the handler, a real draft store, and a model that takes weights as SGLang's does."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from published import publish_tensors
from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected
from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
from torch import Tensor

from tide_cli.drafts.checks import draft_shapes
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocabulary_ids
from tide_cli.engine.plugin.swap import DraftSwap
from tide_cli.errors import TideError

CONFIG = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "vocab_size": 32,
    "draft_vocab_size": 12,
}


class Model(torch.nn.Module):
    """The parameters that SGLang's loader finds by their very names; `load_weights` is SGLang's own."""

    load_weights = LlamaForCausalLMEagle3.load_weights

    def __init__(self) -> None:
        super().__init__()
        self.lm_head, self.model = torch.nn.Linear(8, 12, bias=False), torch.nn.Module()
        self.model.fc = torch.nn.Linear(24, 8, bias=False)
        self.hot_token_id = None


def tensors_for(seed: int, ids: list[int]) -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    made = {name: torch.randn(*size, generator=chance) for name, size in draft_shapes(CONFIG).items()}
    marked = torch.zeros(32, dtype=torch.bool)
    marked[ids] = True
    return made | {"d2t": torch.tensor(ids) - torch.arange(12), "t2d": marked}


def publish(store: DraftStore, folder: Path, tensors: dict[str, Tensor]) -> int:
    return publish_tensors(store, folder, tensors, CONFIG, torch.float32)


OLD, NEW = list(range(12)), [0, 1, 2, 3, 20, 21, 22, 23, 28, 29, 30, 31]


def an_engine(root: Path, **how: object) -> SimpleNamespace:
    """v0000 is served; v0001 has another vocabulary. how: of its DraftSwap."""
    store, made = DraftStore(root / "drafts"), [tensors_for(0, OLD), tensors_for(1, NEW)]
    for number, tensors in enumerate(made):
        publish(store, root / f"made{number}", tensors)
    model = Model()
    model.load_weights(made[0].items())
    worker = SimpleNamespace(
        draft_worker=SimpleNamespace(
            draft_runner=SimpleNamespace(model=model), hot_token_id=vocabulary_ids(made[0]["d2t"])
        )
    )
    swap = DraftSwap(worker, SimpleNamespace(served_version=0, drafts=store.root), **how)
    return SimpleNamespace(swap=swap, model=model, worker=worker.draft_worker, store=store, made=made, root=root)


@pytest.fixture
def engine(tmp_path: Path) -> SimpleNamespace:
    return an_engine(tmp_path)


def fail_half_way(engine: SimpleNamespace) -> None:
    """The next copy does, and none after it."""
    real = engine.model.load_weights

    def fails(weights) -> None:
        engine.model.load_weights = real
        real(list(weights)[:4])  # some are written
        raise RuntimeError("the device is gone")

    engine.model.load_weights = fails


def ask(engine: SimpleNamespace, version: int) -> None:
    """Without preparing it first."""
    handler = engine.swap.update_handlers()["tide_draft"]
    handler.validate("tide_draft", version)
    handler.apply("tide_draft", version)


def prepare(engine: SimpleNamespace, version: int) -> dict[str, object]:
    """The state once this process has read it, or cannot."""
    begin_to_prepare(engine, version)
    wait_for_reader()
    return engine.swap.state()


def begin_to_prepare(engine: SimpleNamespace, version: int) -> None:
    handler = engine.swap.update_handlers()["tide_prepare"]
    handler.validate("tide_prepare", version)
    handler.apply("tide_prepare", version)


def wait_for_reader() -> None:
    for thread in threading.enumerate():
        if thread.name == "tide-swap":
            thread.join(timeout=60)


def assert_served(engine: SimpleNamespace, version: int) -> None:
    tensors = engine.made[version]
    assert engine.swap.version == version
    assert torch.equal(engine.worker.hot_token_id, vocabulary_ids(tensors["d2t"]))
    assert torch.equal(engine.model.lm_head.weight, tensors["lm_head.weight"])
    assert torch.equal(engine.model.model.fc.weight, tensors["fc.weight"])


def test_map_head_and_the_workers_copy_change_together_and_in_place(engine: SimpleNamespace) -> None:
    places = [tensor.data_ptr() for tensor in (engine.worker.hot_token_id, engine.model.lm_head.weight)]
    for version in (1, 0, 1):
        ask(engine, version)
        assert_served(engine, version)
    assert places == [tensor.data_ptr() for tensor in (engine.worker.hot_token_id, engine.model.lm_head.weight)]


def test_what_is_prepared_is_not_read_again(engine: SimpleNamespace) -> None:
    assert prepare(engine, 1)["prepared"] == 1
    assert_served(engine, 0)
    weights = engine.store.path(1) / "model.safetensors"
    kept = weights.read_bytes()
    weights.unlink()
    ask(engine, 1)
    assert_served(engine, 1)
    weights.write_bytes(kept)
    assert engine.swap.state()["prepared"] is None


def test_a_draft_that_finds_no_pinned_memory_is_prepared_in_other(
    engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(tensor: Tensor) -> Tensor:
        raise RuntimeError("cudaHostAlloc failed")

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(Tensor, "pin_memory", no_memory)
        state = prepare(engine, 1)
    assert (state["prepared"], state["refusal"]) == (1, None)
    ask(engine, 1)
    assert_served(engine, 1)


def test_a_late_reader_says_nothing_about_a_later_wish(engine: SimpleNamespace) -> None:
    read, waits = engine.swap._read, [threading.Event(), threading.Event()]
    queue = iter(waits)

    def late(version: int) -> dict[str, Tensor]:
        if (mine := next(queue)).wait(60) and mine is waits[0]:
            raise TideError("the disk was away")
        return read(version)

    engine.swap._read = late
    begin_to_prepare(engine, 1)
    (first,) = (thread for thread in threading.enumerate() if thread.name == "tide-swap")
    begin_to_prepare(engine, 1)
    waits[0].set()
    first.join(timeout=60)
    state = engine.swap.state()
    assert (state["prepared"], state["refusal"]) == (None, None)
    waits[1].set()
    wait_for_reader()
    assert engine.swap.state()["prepared"] == 1


def test_another_version_than_the_prepared_one_can_be_asked_for(engine: SimpleNamespace) -> None:
    prepare(engine, 0)
    ask(engine, 1)
    assert_served(engine, 1)


def test_what_cannot_be_prepared_is_refused_with_its_reason(engine: SimpleNamespace) -> None:
    version = publish(engine.store, engine.root / "wrong", engine.made[1] | {"d2t": torch.zeros(11, dtype=torch.int64)})
    state = prepare(engine, version)
    assert state["prepared"] is None
    refusal = str(state["refusal"])
    assert "the shape of d2t is [11], not [12]" in refusal
    assert "`tide drafts use v0002`, `tide up`" in refusal
    assert_served(engine, 0)
    assert prepare(engine, 1)["refusal"] is None


def test_a_draft_of_another_rope_is_not_put_into_this_engine(engine: SimpleNamespace) -> None:
    made = engine.root / "other"
    version = publish_tensors(engine.store, made, engine.made[1], CONFIG | {"rope_theta": 5e5}, torch.float32)
    refusal = str(prepare(engine, version)["refusal"])
    assert "another make: rope_theta in config.json is 500000.0, not None" in refusal
    assert_served(engine, 0)


def test_each_version_has_prefixes_of_its_own(engine: SimpleNamespace) -> None:
    def came_in(extra_key: str | None = None) -> SimpleNamespace:
        engine.swap.begin(req := SimpleNamespace(extra_key=extra_key))
        return req

    before, tenants = came_in(), [came_in("a"), came_in("b")]
    ask(engine, 1)
    after = came_in()
    ask(engine, 0)
    assert (before.tide_draft, after.tide_draft, came_in().tide_draft) == (0, 1, 0)
    assert len({req.extra_key for req in (before, after, *tenants)}) == 4
    assert came_in().extra_key == before.extra_key  # what v0000 left is good again
    assert came_in("a").extra_key == tenants[0].extra_key


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"d2t": torch.arange(12) + 21}, "d2t must map"),  # beyond the target's last token
        ({"d2t": torch.arange(12).flip(0) * 2}, "d2t must map"),
        ({"t2d": torch.ones(32, dtype=torch.bool)}, "t2d must mark"),
        ({"d2t": torch.zeros(11, dtype=torch.int64)}, "the shape of d2t"),
    ],
)
def test_a_map_that_cannot_be_is_refused_before_a_byte_is_written(
    engine: SimpleNamespace, change: dict[str, Tensor], words: str
) -> None:
    version = publish(engine.store, engine.root / "wrong", engine.made[1] | change)
    with pytest.raises(UpdateRejected, match=words):
        ask(engine, version)
    assert words in engine.swap.state()["refusal"]
    assert_served(engine, 0)


def test_a_copy_that_fails_half_way_puts_everything_back(engine: SimpleNamespace) -> None:
    fail_half_way(engine)
    ask(engine, 1)
    assert "the device is gone" in engine.swap.state()["refusal"]
    assert_served(engine, 0)
