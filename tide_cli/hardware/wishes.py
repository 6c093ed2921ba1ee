"""What is asked of a plan: the settings that bear on devices and memory, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tide_cli.settings import Settings

# A request is planned with this many tokens of context at most unless --context-length asks for more, and a target is
# not served at all where each request would get less than the second figure.
_PLANNED_CONTEXT = 8192
_LEAST_CONTEXT = 2048

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Wishes:
    """Device wishes are None where the plan may choose. Texts are as the user typed them; sizes in bytes."""

    training: bool = True
    speculation: bool = True
    gpus: str | None = None
    serve_gpus: str | None = None
    train_gpus: str | None = None
    tp: int | None = None
    serve_cores: str | None = None
    train_cores: str | None = None
    context_length: int | None = None
    requests: int = 8
    total_tokens: int | None = None  # tokens of the KV cache
    draft_steps: int = 3
    step_counts: tuple[int, ...] = (3,)  # numbers of draft steps that the engine is made ready for, each with graphs
    batch_tokens: int = 2048  # of the largest training batch: a single sample may exceed a batch
    dtype: str = "auto"  # of an unquantised weight as served
    draft_bytes: int = 2  # of a published draft's weight
    sample_tokens: int = 2048  # of the longest sample
    spool_size: int | None = None
    reservoir_size: int | None = None

    def serving_dtype(self, *, native: bool) -> str:
        """What 'auto' means. native: whether the serving device multiplies bfloat16; every GPU does."""
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if native else "float32"

    @property
    def serving_bytes(self) -> int:
        """Of an unquantised weight as served on a GPU."""
        return ELEMENT_BYTES[self.serving_dtype(native=True)]

    def context(self, longest: int) -> int:
        """Tokens of context planned for each request of a target that takes `longest`."""
        return min(self.context_length or _PLANNED_CONTEXT, longest)

    def wanted_tokens(self, longest: int) -> int:
        """Tokens of KV cache that serving should have before anything else gets memory."""
        return self.total_tokens or self.requests * self.context(longest)

    def least_tokens(self, longest: int) -> int:
        """Fewer are refused."""
        return self.total_tokens or self.requests * min(self.context(longest), _LEAST_CONTEXT)

    @classmethod
    def of(cls, settings: Settings) -> Wishes:
        """The wishes that settings express."""
        return cls(
            training=settings.training and settings.speculates and settings.capture,
            speculation=settings.speculates,
            gpus=settings.gpus,
            serve_gpus=settings.serve_gpus,
            train_gpus=settings.train_gpus,
            tp=settings.tp,
            serve_cores=settings.serve_cores,
            train_cores=settings.train_cores,
            context_length=settings.context_length,
            requests=settings.max_running_requests,
            total_tokens=settings.max_total_tokens,
            draft_steps=settings.draft_steps,
            step_counts=_step_counts(settings),
            batch_tokens=max(settings.batch_tokens, settings.max_sample_tokens),
            dtype=settings.dtype,
            draft_bytes=4 if settings.dtype == "float32" else 2,
            sample_tokens=settings.max_sample_tokens,
            spool_size=settings.spool_size,
            reservoir_size=settings.reservoir_size,
        )


def _step_counts(settings: Settings) -> tuple[int, ...]:
    match settings.speculation:
        case "auto":
            return tuple(range(settings.draft_steps + 1))
        case int(steps):
            return (steps,)
    return (settings.draft_steps,)
