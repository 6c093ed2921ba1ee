"""The least memory that serves a target, for a table; a plan says it of a machine."""

from __future__ import annotations

from tide_cli.hardware.memory import PREFILL_STEPS, cpu_engine_parts, serving_parts, total
from tide_cli.hardware.planner import CPU_TOTAL_TOKENS
from tide_cli.hardware.wishes import Wishes
from tide_cli.targets.shape import TargetShape


def least_memory(shape: TargetShape) -> tuple[int, int]:
    """Bytes: of a single GPU, and of main memory on a CPU; with the usual draft, the default requests, no trainer,
    in bfloat16 unless the target is quantised."""
    wishes, draft = Wishes(), shape.usual_draft
    tokens = wishes.least_tokens(shape.context_length)
    gpu = serving_parts(shape, draft, wishes, tp=1, prefill_tokens=PREFILL_STEPS[-1], tokens=tokens)
    return total(gpu), total(cpu_engine_parts(shape, draft, "bfloat16", CPU_TOTAL_TOKENS))
