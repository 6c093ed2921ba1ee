"""What the scheduler's thread hands to the capture's: forwards, ends of requests, wishes to erase."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from tide_cli.engine.plugin.staging import HostCopy
from tide_cli.spool.running import Part
from tide_cli.spool.samples import domain_label

# Requests whose id starts so are TIDE's or SGLang's own questions, not traffic.
OWN_REQUEST_PREFIXES = ("tide-", "HEALTH_CHECK")


@dataclass(frozen=True)
class ForwardBatch:
    """What must be noted before a forward, because SGLang changes the batch in place."""

    rids: list[str]
    starts: list[int] | torch.Tensor  # first position of each request's rows
    counts: list[int] | None  # rows of each request in a prefill; None in verify, where accept_lens tells
    tokens: list[np.ndarray] | None = None  # in a prefill: each request's ids up to the end of these rows

    def parts(self, host: Mapping[str, torch.Tensor]) -> list[Part]:
        """Which rows of the forward are whose. host: what the copy holds once it has been waited for."""
        if self.counts is not None:
            offsets, counts, starts = [0, *accumulate(self.counts[:-1])], self.counts, self.starts
        else:
            width = host["aux"].shape[0] // len(self.rids)
            offsets = [width * i for i in range(len(self.rids))]
            counts, starts = host["accept_lens"].tolist(), host["starts"].tolist()
        tokens = self.tokens or [None] * len(self.rids)
        return [Part(*part) for part in zip(self.rids, starts, offsets, counts, tokens, strict=True)]


@dataclass(frozen=True)
class Rows:
    """One forward on its way to the spool: aux [rows, 3H], final [rows, H], accept_lens [bs] or None.

    size: bytes of host memory that aux and final hold.
    """

    batch: ForwardBatch
    copy: HostCopy
    size: int


@dataclass(frozen=True)
class Finished:
    """A request that has ended; tokens = prompt and output up to the stop. answers: whether it asked for any output."""

    rid: str
    tokens: list[int]
    prompt_tokens: int
    draft_version: int
    verify_steps: int
    correct_drafts: int
    aborted: bool
    domain: str = ""
    answers: bool = True

    @classmethod
    def of(cls, req) -> Finished:
        """req: SGLang's request, ended."""
        from sglang.srt.managers.schedule_batch import FINISH_ABORT  # all else here is torch's and TIDE's own

        prompt = list(req.origin_input_ids)
        # where the number of draft steps is chosen for each round, SGLang's counts mix them; these are of the largest
        rounds, correct = getattr(req, "tide_rounds", (req.spec_verify_ct, req.spec_num_correct_drafts))
        return cls(
            rid=req.rid,
            tokens=prompt + list(req.output_ids_through_stop),
            prompt_tokens=len(prompt),
            draft_version=getattr(req, "tide_draft", -1),  # SGLang ends some before swap.py has seen them
            verify_steps=rounds,
            correct_drafts=round(correct),
            aborted=isinstance(req.finished_reason, FINISH_ABORT),
            # the header X-SMG-Routing-Key: all else that a client can say of itself (`user`, custom labels) ends in
            # SGLang's tokenizer process, or (`extra_key`) splits the prefix cache
            domain=domain_label(req.routing_key),
            # SGLang sends such a one of its own before several answers (`n`), for the prompt that they share
            answers=req.sampling_params.max_new_tokens != 0,
        )


@dataclass(frozen=True)
class Erase:
    """Somebody has left the request of this number in the spool's folder."""

    number: int


def is_chosen(rid: str, share: float) -> bool:
    """Whether a request is one of the share that is stored: decided by its id, so that it is stored whole."""
    return int.from_bytes(hashlib.blake2b(rid.encode(), digest_size=8).digest(), "big") < share * 2**64
