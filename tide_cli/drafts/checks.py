"""Whether an EAGLE3 draft made elsewhere can be served beside a target, and taking it into the store. Needs torch."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tide_cli.drafts.complete import Lender, completed, read_any, write
from tide_cli.drafts.config import check_config, size
from tide_cli.drafts.fit import HEAD, MAP, TargetFacts, lacks, misfit, same_aux_layers
from tide_cli.drafts.manifest import CONFIG_FILE, WEIGHTS_FILE, Manifest
from tide_cli.drafts.store import DraftStore, check_files
from tide_cli.drafts.tensors import WHOLE, check_draft, check_vocabulary_map, vocab_map_hash
from tide_cli.errors import TideError, reason
from tide_cli.json_files import read_object


def publish_foreign(
    folder: Path,
    store: DraftStore,
    *,
    target: str,
    target_revision: str,
    target_config: Mapping[str, Any],
    remedy: str,
    beside: Mapping[str, Any] | None = None,
    lend: Lender | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Check the draft in `folder` against the target and publish it without a parent; returns its version.

    target_config: at least hidden_size and vocab_size. beside: config.json of a draft of the store, whose samples this
    one is to share. What a draft lacks and what follows from the rest is filled in, in the store's copy, and told to
    `say` (see drafts.complete; `lend` as there). TideError, ending with `remedy`, names what does not fit.
    """
    config = read_json(folder / CONFIG_FILE, remedy)
    if why := misfit(config, TargetFacts.of(target_config)):
        raise TideError(f"the draft {folder} does not belong to {target}", why=why, remedy=remedy)
    if beside is not None and not same_aux_layers(config, beside):
        raise TideError(
            f"the draft {folder} cannot join those of this appliance",
            why="it reads other layers of the target: samples and running engine are of no use to it",
            remedy=f"`tide up --draft {shlex.quote(str(folder))} --state-dir OTHER` starts another appliance with it",
        )
    if (manifest := _exported(folder)) is not None:
        if manifest.target != target:
            why = f"it was trained on {manifest.target}"
            raise TideError(f"the draft {folder} does not belong to {target}", why=why, remedy=remedy)
        check_files(folder, manifest)
    tensors = read_any(folder)
    if lend is None and HEAD not in tensors and MAP not in tensors:
        why = "it has no head of its own, and the target that could lend it one is not at hand"
        remedy = f"`tide up --draft {shlex.quote(str(folder))} --state-dir OTHER` starts an appliance with it"
        raise TideError(f"the draft {folder} is not complete", why=why, remedy=remedy)
    longest = target_config.get("max_position_embeddings")
    made, shape, notes = completed(tensors, config, context_length=longest, lend=lend)
    try:
        if why := lacks(made, shape):
            raise TideError("a part is missing", why=why)
        check_config(shape)
        check_tensors(made, shape)
    except TideError as error:
        what = f"the draft {folder} cannot be served: {error.what}"
        raise TideError(what, why=error.why, remedy=remedy) from None
    for note in notes:
        say(note)
    with tempfile.TemporaryDirectory(prefix="tide-draft-") as scratch:
        source = folder
        if notes or not (folder / WEIGHTS_FILE).is_file():
            source = Path(scratch)
            write(source, made, shape)
        return store.publish(
            source,
            parent=None,
            target=target,
            target_revision=target_revision,
            vocab_map_hash=vocab_map_hash(made["d2t"]),
            samples=0,
            tokens=0,
            gate=None,
        )


def _exported(folder: Path) -> Manifest | None:
    """What `tide drafts export` wrote beside a draft; None for one from elsewhere."""
    try:
        return Manifest.read(folder)
    except TideError:
        return None


_FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_DTYPES = {"d2t": WHOLE, "t2d": (torch.bool, *WHOLE)}  # of the others: _FLOATING


def check_tensors(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Refuses tensors that are not those of a draft with this config.json, in any floating dtype: the engine casts.

    TideError names the first that is wrong.
    """
    expected = {}
    for name, shape in draft_shapes(config).items():
        allowed = _DTYPES.get(name, _FLOATING)
        own = tensors[name].dtype if name in tensors else None
        expected[name] = shape, own if own in allowed else allowed[0]
    check_draft(tensors, expected)
    check_vocabulary_map(tensors["d2t"], tensors["t2d"])


def draft_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensor name to shape of a one-layer EAGLE3 draft with this config.json (SGLang's LlamaForCausalLMEagle3)."""
    hidden, inner, heads = (size(config, name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    vocabulary, drafted = size(config, "vocab_size"), size(config, "draft_vocab_size")
    head = size(config, "head_dim", hidden // heads)
    query, key = heads * head, size(config, "num_key_value_heads", heads) * head
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


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file. TideError, ending with `remedy`, where there is none."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise TideError(f"cannot read {path}", why=reason(error), remedy=remedy) from None
