"""What the ranks of one engine decide together. For the scheduler's thread: every rank gets the same requests and the
same rounds in the same order, so each of these calls, which wait for all ranks, meets its like."""

from __future__ import annotations

from collections.abc import Callable

import torch


def agreed(number: int) -> int:
    """Rank 0's number, on every rank."""
    if _parallel().tp_size == 1:
        return number
    group = _parallel().tp_group
    told = torch.tensor([number])
    torch.distributed.broadcast(told, src=group.ranks[0], group=group.cpu_group)
    return int(told)


def on_all_ranks(well: bool) -> bool:
    """Whether it is so on each of them."""
    if _parallel().tp_size == 1:
        return well
    told = torch.tensor([well], dtype=torch.int32)
    torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MIN, group=_parallel().tp_group.cpu_group)
    return bool(told)


def number_handler(apply: Callable[[float], None], refusal: str | None = None):
    """For a key of `POST /set_internal_state`. refusal: why it cannot be, if so, on any rank.

    All ranks refuse what is no finite number, since an exception that leaves `apply` ends the engine.
    """
    from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected, _UpdateHandler

    def validate(key: str, value: float) -> None:
        why = refusal
        try:
            int(value)
        except (ValueError, OverflowError) as error:
            why = str(error)
        if why:
            raise UpdateRejected(f"{key}={value} refused: {why}")

    return _UpdateHandler(validate, lambda key, value: apply(value))


def _parallel():
    from sglang.srt.runtime_context import get_parallel  # the checks on a GPU run without SGLang

    return get_parallel()
