from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tide_cli.drafts.checks import draft_shapes
from tide_cli.drafts.store import DraftStore
from tide_cli.drafts.tensors import vocab_map_hash

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "draft_vocab_size": 12,
    "tie_word_embeddings": False,
}

MakeDraft = Callable[..., Path]


@pytest.fixture
def make_draft(tmp_path: Path) -> MakeDraft:
    """A folder with an EAGLE3 draft of random weights; `tensors` replaces some (None: left out), `config` likewise."""

    def make(name: str = "draft", seed: int = 0, tensors: dict | None = None, config: dict | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        shape = {**CONFIG, **(config or {})}
        chance = torch.Generator().manual_seed(seed)
        made = {n: torch.randn(*size, generator=chance) for n, size in draft_shapes(CONFIG).items()}
        made["d2t"] = torch.arange(12)  # every second token of the target
        made["t2d"] = torch.tensor([i % 2 == 0 and i < 24 for i in range(32)])
        made = {n: t for n, t in {**made, **(tensors or {})}.items() if t is not None}
        save_file(made, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({n: v for n, v in shape.items() if v is not None}))
        return folder

    return make


@pytest.fixture
def publish(tmp_path: Path, make_draft: MakeDraft) -> Callable[..., int]:
    """Publish a random draft in the store tmp_path/state/drafts."""
    store = DraftStore(tmp_path / "state" / "drafts")

    def publish(parent: int | None = None, gate: dict | None = None, **draft: object) -> int:
        number = (store.latest() or 0) + 1 if store.versions() else 0
        folder = make_draft(f"made{number}", seed=number, **draft)
        return store.publish(
            folder,
            parent=parent,
            target="made-up",
            target_revision="r1",
            vocab_map_hash=vocab_map_hash(torch.arange(12)),
            samples=number,
            tokens=100 * number,
            gate=gate,
        )

    return publish
