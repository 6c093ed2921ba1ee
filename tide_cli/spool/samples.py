"""A stored sample, and what is known about it without reading its rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Split = Literal["train", "held_out"]
DOMAIN_BYTES = 36  # room for a UUID in its usual form


@dataclass(frozen=True)
class SampleInfo:
    """One row of the index.

    tokens: rows stored, T. prompt_tokens: length of the whole prompt. prefix_missing: position of the first stored
    row; of the rows before it, `cut` were there but did not fit into the longest sample allowed, and the others were
    not computed (prefix cache) and in no page any more. reused: rows taken over from pages of earlier requests.
    verify_steps, accepted: of the request's rounds with the largest number of draft steps. created: unix seconds.
    pages: places in the ring, in order, some of them perhaps shared with other samples; generations: what each page
    had when the sample was stored. domain: the label that the client gave the request, "" where it gave none.
    times_trained: as far as whoever made this object knows.
    """

    id: int
    run: str
    draft_version: int
    created: float
    tokens: int
    prompt_tokens: int
    prefix_missing: int
    verify_steps: int
    accepted: int
    split: Split
    checksum: int
    pages: tuple[int, ...]
    generations: tuple[int, ...] = ()
    cut: int = 0
    reused: int = 0
    domain: str = ""
    times_trained: int = field(default=0, compare=False)

    @property
    def generated(self) -> int:
        """Stored rows whose token the target generated."""
        return self.tokens - max(0, self.prompt_tokens - self.prefix_missing)


@dataclass(frozen=True)
class Sample:
    """The rows of a sample; row 0 is the token at position `info.prefix_missing`.

    tokens [T] int64; loss_mask [T] bool, True on tokens the target generated;
    aux [T, 3H] and final [T, H] bfloat16. T = info.tokens.
    """

    info: SampleInfo
    tokens: Tensor
    loss_mask: Tensor
    aux: Tensor
    final: Tensor

    def is_usable(self, vocab_size: int) -> bool:
        """Whether a draft of a target with `vocab_size` tokens can be trained on it or judged by it."""
        known = bool(self.tokens.min() >= 0) and bool(self.tokens.max() < vocab_size)
        return known and is_finite(self.aux) and is_finite(self.final)


def is_finite(states: Tensor) -> bool:
    """Whether none of at least one value is NaN or infinite."""
    import torch  # most of what needs this module needs none

    # Least and greatest pass NaN on. Asking each value takes twenty times as long and more.
    return bool(torch.isfinite(torch.stack(states.aminmax())).all())


def domain_label(given: object) -> str:
    """What a client gave as its label, as it is stored: printable, at most DOMAIN_BYTES of UTF-8; "" for none."""
    text = "".join(filter(str.isprintable, given)).strip() if isinstance(given, str) else ""
    return text.encode(errors="ignore")[:DOMAIN_BYTES].decode(errors="ignore")


def split_of(sample_id: int, held_out_share: float) -> Split:
    """The split of a sample: a pure function of its id, so that it never changes sides."""
    digest = hashlib.blake2b(str(sample_id).encode(), digest_size=8).digest()
    return "held_out" if int.from_bytes(digest, "big") < held_out_share * 2**64 else "train"
