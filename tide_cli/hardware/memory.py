"""How many bytes engine and trainer need on a device, part by part.

Weights, KV cache and reserves follow SGLang 0.5.23's own arithmetic (pool_configurator.py, memory_hook.py), so that a
plan asks for what the engine will really take. What is an allowance rather than a sum says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tide_cli.hardware.wishes import ELEMENT_BYTES, Wishes
from tide_cli.targets.shape import DraftShape, TargetShape

MIB, GIB = 2**20, 2**30

# Tokens of one prefill step, the fastest first. A larger step is only chosen once the wanted KV cache is there.
PREFILL_STEPS = (8192, 4096, 2048)
# SGLang reserves 512 MiB, and 1.5 MiB for each token of a prefill step (memory_hook.py).
_ACTIVATIONS, _ACTIVATION_OF_TOKEN = 512 * MIB, 3 * MIB // 2
# SGLang reserves 2 MiB for each request of the largest decode graph and 8 MiB for each prefill graph, as if there were
# one model and one number of draft steps.
_GRAPH_OF_REQUEST, _PREFILL_GRAPH = 2 * MIB, 8 * MIB
# Tokens of its prefill graphs up to the step's (cuda_graph_hook.py): first, last, every so many.
_PREFILL_GRAPH_TOKENS = (
    (4, 32, 4),
    (48, 256, 16),
    (288, 512, 32),
    (576, 1024, 64),
    (1280, 4096, 256),
    (4608, 8192, 512),
)
# Allowances: the driver's context and libraries; NCCL's buffers where several GPUs work together.
_CONTEXT, _COLLECTIVES = 512 * MIB, 512 * MIB
# What a Python process with torch holds in main memory on a CPU. Measured with SmolLM2: SGLang's three hold 0.5, 0.5
# and 0.6 GiB besides weights, packed copies and KV cache, and share 0.3 GiB of libraries; the trainer holds 0.5 GiB.
_CPU_PROCESS, _ENGINE_PROCESSES = GIB // 2, 4
# SGLang keeps 0.8 tokens of the sliding-window layers for each token of the full ones (swa_full_tokens_ratio).
_SLIDING_NUMERATOR, _SLIDING_DENOMINATOR = 4, 5
# Kernels for MXFP4 want the sizes of an expert's matrices rounded up: hidden and, for each GPU, intermediate.
_MXFP4_HIDDEN, _MXFP4_INTERMEDIATE, _MXFP4_BITS = 256, 128, (17, 4)  # 4.25 bits
_PAGE = 64  # tokens; the largest page of SGLang's attention backends
_KV_BYTES = 2  # keys and values are bfloat16 on a GPU
_VOCABULARY_CHUNK = 32768  # SpecForge's compact teacher looks at this many tokens at a time
_CAPTURED_FORWARDS = 2  # copies of a forward's hidden states in flight
_WALK_ELEMENTS = 64 * MIB  # of what the gate's walk computes for the rows that it looks at together
# Old samples that are kept: a fifth of them is held out, and the gate walks 48 of those.
_KEPT_SAMPLES = 240


@dataclass(frozen=True)
class Part:
    """A named share of a device's memory. owner: 'engine' or 'trainer'; size in bytes."""

    owner: str
    name: str
    size: int


def total(parts: Iterable[Part]) -> int:
    """Bytes of all parts together."""
    return sum(part.size for part in parts)


def kv_token_bytes(shape: TargetShape, draft: DraftShape | None, tp: int, element_bytes: int = _KV_BYTES) -> int:
    """Bytes of KV cache for one token on each of `tp` devices, the draft's layer included.

    SGLang counts the draft's layer as one of the target's; a wider one really takes more, a narrower one is counted so
    all the same.
    """

    def layer(kv_heads: int, head_dim: int) -> int:
        return max(1, kv_heads // tp) * 2 * head_dim * element_bytes

    own = layer(shape.kv_heads, shape.head_dim)
    full = own * (shape.layers - shape.sliding_layers)
    sliding = _ceil(own * shape.sliding_layers * _SLIDING_NUMERATOR, _SLIDING_DENOMINATOR)
    return full + sliding + (max(own, layer(draft.kv_heads, draft.head_dim)) if draft else 0)


def served_weight_bytes(shape: TargetShape, serving_bytes: int) -> int:
    """Bytes of the target's weights as they are served: a quantised checkpoint stays what it is on disk."""
    return shape.weight_bytes if shape.quantisation else _ceil(shape.weight_bytes * serving_bytes, shape.element_bytes)


def engine_parts(
    shape: TargetShape, draft: DraftShape | None, wishes: Wishes, *, tp: int, prefill_tokens: int
) -> tuple[Part, ...]:
    """What the engine takes on each of `tp` GPUs besides the KV cache."""
    captured = _CAPTURED_FORWARDS * prefill_tokens * 8 * shape.hidden_size  # 4H columns of bfloat16 a token
    parts = {
        "target weights": _ceil(served_weight_bytes(shape, wishes.serving_bytes), tp),
        "expert padding": _expert_padding(shape, tp),
        "draft weights": _ceil(draft.parameters * wishes.draft_bytes, tp) if draft else 0,
        "CUDA graphs": _graph_bytes(draft, wishes, prefill_tokens),
        "activations": _ACTIVATIONS + prefill_tokens * _ACTIVATION_OF_TOKEN + tp * GIB // 8,
        "captured states": captured if draft else 0,
        "driver and libraries": _CONTEXT + (_COLLECTIVES if tp > 1 else 0),
    }
    return _parts("engine", parts)


def serving_parts(
    shape: TargetShape, draft: DraftShape | None, wishes: Wishes, *, tp: int, prefill_tokens: int, tokens: int
) -> tuple[Part, ...]:
    """`engine_parts` and a KV cache of so many tokens."""
    cache = Part("engine", "KV cache", tokens * kv_token_bytes(shape, draft, tp))
    return (*engine_parts(shape, draft, wishes, tp=tp, prefill_tokens=prefill_tokens), cache)


# Of `serving_parts`, what SGLang's --mem-fraction-static covers, and what is gone before SGLang looks at how much
# memory is free.
STATIC_PARTS = frozenset({"target weights", "expert padding", "draft weights", "KV cache"})
EARLY_PARTS = frozenset({"driver and libraries"})


def trainer_parts(
    shape: TargetShape, draft: DraftShape, wishes: Wishes, *, on_gpu: bool, gpus: int = 1
) -> tuple[Part, ...]:
    """What the trainer takes: bfloat16 weights on a GPU, float32 on a CPU; masters and moments float32 in any case.

    gpus: that train together. Each holds all of this, and a batch of its own; gradients are added up in place.
    """
    element = 2 if on_gpu else 4
    hidden, weights = shape.hidden_size, draft.parameters
    attention = 2 * (draft.heads + 2 * draft.kv_heads) * draft.head_dim
    kept = element * (8 * hidden + attention + 4 * draft.intermediate_size)  # for the backward pass, a token and depth
    scores = 3 * 4 * draft.vocab_size  # logits, their softmax and the teacher's, float32
    teacher = (4 + element) * min(shape.vocab_size, _VOCABULARY_CHUNK)
    token = element * 4 * hidden + teacher + wishes.draft_steps * (kept + scores)
    best = 0 if on_gpu else 4 * weights  # the best masters of a cycle so far, in main memory
    batch = wishes.batch_tokens * token + best
    gate = 4 * weights + walk_bytes(draft, wishes.sample_tokens, wishes.draft_bytes)  # with a copy of the masters
    parts = {
        "masters": 4 * weights,
        "Adam moments": 8 * weights,
        "gradients": (element + 4) * weights,  # the module's, and their float32 copies for the masters
        "draft copies": (element + wishes.draft_bytes) * weights,  # in training, and for measuring
        "embedding and head": 2 * shape.vocab_size * hidden * element,
        "batch or walk": max(batch, gate),  # never both at a time
        "driver and libraries" if on_gpu else "process": _CONTEXT + (_COLLECTIVES if gpus > 1 else 0)
        if on_gpu
        else _CPU_PROCESS,
    }
    return _parts("trainer", parts)


def walk_rows(draft: DraftShape, tokens: int) -> int:
    """Rows of a sample of so many tokens that a walk looks at together: their scores have a column for each token."""
    return min(tokens, max(1, _WALK_ELEMENTS // _walk_row(draft, tokens)))


def _walk_row(draft: DraftShape, tokens: int) -> int:
    """Elements that are computed for a row: scores, states (3H of the target, and what the layer makes of them), MLP,
    logits. They are not all there at a time."""
    return draft.heads * tokens + 16 * draft.hidden_size + 4 * draft.intermediate_size + draft.vocab_size


def walk_bytes(draft: DraftShape, tokens: int, element_bytes: int) -> int:
    """What a walk over a sample takes at most: keys and values of each token, and the rows that it looks at together,
    as they are, in float32 for the softmax, and its result."""
    cache = 2 * draft.kv_heads * draft.head_dim * element_bytes
    return tokens * cache + walk_rows(draft, tokens) * _walk_row(draft, tokens) * (element_bytes + 8)


def cpu_engine_parts(shape: TargetShape, draft: DraftShape | None, dtype: str, total_tokens: int) -> tuple[Part, ...]:
    """What the engine takes in main memory on a CPU, served in `dtype`, 'float32' or 'bfloat16'."""
    element = ELEMENT_BYTES[dtype]
    drafted = draft.parameters if draft else 0
    parts = {
        "target weights": served_weight_bytes(shape, element),
        "draft weights": drafted * element,
        "packed copies": (_packed_parameters(shape) + drafted) * element,
        "KV cache": total_tokens * kv_token_bytes(shape, draft, 1, element),
        "processes": _ENGINE_PROCESSES * _CPU_PROCESS,
    }
    return _parts("engine", parts)


def _packed_parameters(shape: TargetShape) -> int:
    """Weights that are there a second time, laid out for oneDNN (engine/cpu/packed_linear.py): of the layers that are
    neither quantised nor experts; an embedding that is not the head is counted too."""
    return shape.parameters - shape.expert_parameters if shape.quantisation in (None, "mxfp4") else 0


def _graph_bytes(draft: DraftShape | None, wishes: Wishes, prefill_tokens: int) -> int:
    """Decode graphs of the target, of draft-extend and, from two steps on, of the draft, for each number of draft steps
    that the engine may change to, 0 included (eagle_worker_v2.py); prefill graphs of target and draft."""
    prefill = sum(
        len(range(first, min(last, prefill_tokens) + 1, every)) for first, last, every in _PREFILL_GRAPH_TOKENS
    )
    decode = sum(3 if steps > 1 else 2 for steps in wishes.step_counts) if draft else 1
    return wishes.requests * _GRAPH_OF_REQUEST * decode + (2 if draft else 1) * prefill * _PREFILL_GRAPH


def _expert_padding(shape: TargetShape, tp: int) -> int:
    """What rounding up adds to the MXFP4 experts on each GPU; 0 for every other target."""
    if shape.quantisation != "mxfp4" or not shape.experts:
        return 0
    inner = _ceil(shape.expert_intermediate_size, tp)

    def size(hidden: int, intermediate: int) -> int:
        numerator, denominator = _MXFP4_BITS
        weights = shape.layers * shape.experts * 3 * hidden * intermediate
        return _ceil(weights * numerator, denominator * 8)

    padded = size(_round_up(shape.hidden_size, _MXFP4_HIDDEN), _round_up(inner, _MXFP4_INTERMEDIATE))
    return padded - size(shape.hidden_size, inner)


def whole_pages(tokens: int, *, up: bool = False) -> int:
    """Tokens of a KV cache, rounded down, or up, to whole pages."""
    return _round_up(tokens, _PAGE) if up else tokens // _PAGE * _PAGE


def spool_size(free: int) -> int:
    """Bytes of a new ring where the user names none: a tenth of the free disk, at most 64 GiB."""
    return min(free // 10, 64 * GIB)


def reservoir_size(wanted: int | None, *, ring: int, row: int, sample_tokens: int) -> int:
    """Bytes of old samples that are kept: as wanted, else room for 240 samples of half the longest, and at most an
    eighth of the ring. ring, row: bytes of the ring and of a token in it; sample_tokens: tokens of the longest sample.
    """
    return min(_KEPT_SAMPLES * sample_tokens * row // 2, ring // 8) if wanted is None else wanted


def _parts(owner: str, sizes: dict[str, int]) -> tuple[Part, ...]:
    return tuple(Part(owner, name, size) for name, size in sizes.items() if size)


def _round_up(size: int, multiple: int) -> int:
    return _ceil(size, multiple) * multiple


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
