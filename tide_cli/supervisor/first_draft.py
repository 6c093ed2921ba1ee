"""Child process `python -m tide_cli.supervisor.first_draft --draft DRAFT --config FILE`: a ready-made draft as v0000.

DRAFT is a folder or a hub id; FILE the trainer's configuration, which names target and store. Errors go to stderr as
`tide: …` lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.errors import TideError
from tide_cli.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor


_REMEDY = "pass --draft with an EAGLE3 draft of this target, or none: TIDE then makes a fresh one"


def import_draft(draft: str, config: TrainingConfig) -> int:
    """Verify `draft` against the target and publish it; returns its version. Raises TideError naming what is wrong."""
    from tide_cli.drafts.tensors import check_draft, draft_kinds, read_draft, vocab_map_hash

    folder = Path(draft).expanduser()
    if not folder.is_dir():
        from tide_cli.targets.hub import download

        folder = download(draft, None)
    shape, target = _json(folder / "config.json"), _json(config.target / "config.json")
    target = target.get("text_config", target)
    for name in ("hidden_size", "vocab_size"):
        if shape.get(name) != target.get(name):
            why = f"its {name} is {shape.get(name)}, the target's {target.get(name)}"
            raise TideError(f"the draft {draft} does not belong to {config.target_name}", why=why, remedy=_REMEDY)
    tensors = read_draft(folder)
    kinds = draft_kinds(tensors)
    shapes = draft_shapes(shape)
    try:
        # a draft may come in any floating dtype: the engine casts it
        check_draft(tensors, {name: (size, kinds[name][1] if name in kinds else None) for name, size in shapes.items()})
    except TideError as error:
        raise TideError(f"the draft {draft} cannot be served: {error.what}", why=error.why, remedy=_REMEDY) from None
    _check_vocabulary_map(draft, tensors["d2t"], target["vocab_size"])
    return DraftStore(config.drafts).publish(
        folder,
        parent=None,
        target=config.target_name,
        target_revision=config.target_revision,
        vocab_map_hash=vocab_map_hash(tensors["d2t"]),
        samples=0,
        tokens=0,
        gate=None,
    )


def _check_vocabulary_map(draft: str, d2t: Tensor, vocab_size: int) -> None:
    """d2t [draft tokens] holds how far the target's id of each lies above its own: the ids must ascend."""
    import torch

    if not d2t.is_floating_point():
        ids = d2t.long() + torch.arange(len(d2t))
        if ids[0] >= 0 and ids[-1] < vocab_size and bool((ids.diff() > 0).all()):
            return
    why = f"d2t must map its {len(d2t)} tokens to ascending ids below {vocab_size}"
    raise TideError(f"the draft {draft} cannot be served: its vocabulary map is wrong", why=why, remedy=_REMEDY)


def draft_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensor name to shape of a one-layer EAGLE3 draft with this config.json (SGLang's LlamaForCausalLMEagle3)."""
    hidden, inner, heads = (_size(config, name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    vocabulary, drafted = _size(config, "vocab_size"), _size(config, "draft_vocab_size")
    head = _size(config, "head_dim", hidden // heads)
    query, key = heads * head, _size(config, "num_key_value_heads", heads) * head
    layer = {
        **dict.fromkeys(("hidden_norm.weight", "input_layernorm.weight", "post_attention_layernorm.weight"), (hidden,)),
        "self_attn.q_proj.weight": (query, 2 * hidden),
        "self_attn.k_proj.weight": (key, 2 * hidden),
        "self_attn.v_proj.weight": (key, 2 * hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    return {f"midlayer.{name}": size for name, size in layer.items()} | {
        "fc.weight": (hidden, 3 * hidden),
        "norm.weight": (hidden,),
        "lm_head.weight": (drafted, hidden),
        "d2t": (drafted,),
        "t2d": (vocabulary,),
    }


def _size(config: dict[str, Any], name: str, default: int | None = None) -> int:
    """A positive number of the configuration; what is absent or null is the default where there is one."""
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    why = f"{name} is missing" if value is None else f"{name} is {value!r}, not a positive number"
    raise TideError("the draft's config.json is not that of an EAGLE3 draft", why=why, remedy=_REMEDY)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TideError(
            f"cannot read {path}", why=getattr(error, "strerror", None) or str(error), remedy=_REMEDY
        ) from None
    if not isinstance(content, dict):
        raise TideError(f"cannot read {path}", why="it is no JSON object", remedy=_REMEDY)
    return content


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tide_cli.supervisor.first_draft")
    parser.add_argument("--draft", required=True)
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    try:
        version = import_draft(options.draft, TrainingConfig.from_json(options.config.read_text()))
    except TideError as error:
        print("\n".join(f"tide: {line}" for line in error.lines()), file=sys.stderr)
        return int(error.exit_code)
    print(f"{options.draft} is {version_name(version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
