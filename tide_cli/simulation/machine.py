"""How long the engine takes for a round and for a prompt: a roofline from data sheets, or measured round times.

The roofline: a pass over n tokens reads the weights that it needs and the KV cache of its requests, or computes, which
ever takes longer, and every layer has a time below which it does not come: kernels to start, and GPUs to wait for.
With experts the weights that a pass reads grow with its tokens: under even routing n tokens wake
E·(1 - (1 - k/E)^n) of E experts, k of them each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from tide_cli.engine.plugin.profile import Profile
from tide_cli.engine.plugin.round_times import RoundTimes
from tide_cli.errors import TideError
from tide_cli.hardware.inventory import FAST_LINKS, Gpu, Inventory
from tide_cli.hardware.memory import kv_token_bytes, served_weight_bytes
from tide_cli.simulation.gpu_figures import GpuFigures
from tide_cli.targets.shape import DraftShape, TargetShape

# Part of the sheets' figures that kernels of this kind come to. With these and the layer times below the published
# single-request rates of docs/simulation.md are met within some 20 %.
BANDWIDTH_USED, FLOPS_USED = 0.85, 0.5
# Seconds: a dense layer and what experts add to it, replayed from a CUDA graph; the two all-reduces of a layer over
# NVLink or XGMI, and over PCI Express; a pass of the draft, with sampling and the engine's bookkeeping.
DENSE_LAYER, EXPERT_LAYER, FAST_REDUCES, SLOW_REDUCES, DRAFT_PASS = 20e-6, 40e-6, 20e-6, 60e-6, 250e-6
# Bytes/s between GPUs in one direction, as far as all-reduces use it.
FAST_LINK, SLOW_LINK = 200e9, 20e9


class Machine(Protocol):
    """The engine's devices. Rounds as `adaptation.speculation.RoundCosts` asks for them, by batch and draft steps.

    context: tokens that a request has in the KV cache, on average. All times in seconds.
    """

    def round_seconds(self, batch: int, steps: int, context: float = 0.0) -> float: ...

    def prefill_seconds(self, tokens: int) -> float: ...


@dataclass(frozen=True)
class Roofline:
    """A target and its draft spread over `tp` equal GPUs. element_bytes: of an unquantised weight as served."""

    target: TargetShape
    draft: DraftShape | None
    gpu: GpuFigures
    tp: int = 1
    fast_links: bool = True
    element_bytes: int = 2

    def round_seconds(self, batch: int, steps: int, context: float = 0.0) -> float:
        verify = self.pass_seconds(batch * (steps + 1), batch, context)
        return verify + steps * self.draft_seconds(batch) if steps else verify

    def prefill_seconds(self, tokens: int) -> float:
        """Of prompts of so many tokens together; the draft goes over them too. Attention within them is left out."""
        if not tokens:
            return 0.0
        seconds = self.pass_seconds(tokens, 0, 0.0)
        return seconds + self.draft_seconds(tokens) if self.draft else seconds

    def pass_seconds(self, tokens: int, requests: int, context: float) -> float:
        """T: of one pass of the target over `tokens` tokens of `requests` requests."""
        moved = self.weight_bytes_read(tokens) + requests * self._cache_bytes(context)
        computed = 2 * self._active_parameters * tokens
        target = self.target
        layer = DENSE_LAYER + (EXPERT_LAYER if target.experts else 0.0) + self._reduce_seconds(tokens)
        return target.layers * layer + self._busy(moved, computed)

    def draft_seconds(self, tokens: int) -> float:
        """D: of one pass of the draft, a layer and its head."""
        assert self.draft is not None, "a target without a draft takes no draft steps"
        parameters = self.draft.parameters
        busy = self._busy(parameters * self.element_bytes, 2 * parameters * tokens)
        return DRAFT_PASS + self._reduce_seconds(tokens) + busy

    def weight_bytes_read(self, tokens: int) -> float:
        """Of the target, on all GPUs together, by a pass over so many tokens: all but embedding and idle experts."""
        return self._shared_bytes + self._expert_bytes * self._awake(tokens)

    def _awake(self, tokens: int) -> float:
        """Part of the experts that some token is sent to."""
        experts, each = self.target.experts, self.target.experts_per_token
        return 1 - (1 - each / experts) ** tokens if experts else 0.0

    @cached_property
    def _expert_parameters(self) -> int:
        target = self.target
        return target.layers * target.experts * 3 * target.hidden_size * target.expert_intermediate_size

    @cached_property
    def _attention_parameters(self) -> int:
        target = self.target
        return 2 * target.layers * target.hidden_size * (target.heads + target.kv_heads) * target.head_dim

    @cached_property
    def _head_bytes(self) -> int:
        return self.target.vocab_size * self.target.hidden_size * self.element_bytes

    @cached_property
    def _expert_bytes(self) -> float:
        """What is not attention, embedding or head: as quantised."""
        if not self.target.experts:
            return 0.0
        return self._weight_bytes - self._attention_parameters * self.element_bytes - 2 * self._head_bytes

    @cached_property
    def _weight_bytes(self) -> int:
        return served_weight_bytes(self.target, self.element_bytes)

    @cached_property
    def _shared_bytes(self) -> float:
        embedding = 0 if self._tied else self._head_bytes
        return self._weight_bytes - self._expert_bytes - embedding

    @cached_property
    def _tied(self) -> bool:
        """One matrix is embedding and head: the file has too few bytes for two. A quantised target counts as untied."""
        target = self.target
        if target.quantisation or target.experts:
            return False
        mlp = 3 * target.layers * target.hidden_size * target.intermediate_size
        return self._weight_bytes < (self._attention_parameters + mlp) * self.element_bytes + 1.9 * self._head_bytes

    @cached_property
    def _active_parameters(self) -> float:
        target = self.target
        each = target.experts_per_token / target.experts if target.experts else 0.0
        dense = 0 if target.experts else 3 * target.layers * target.hidden_size * target.intermediate_size
        head = target.vocab_size * target.hidden_size
        return self._attention_parameters + dense + head + self._expert_parameters * each

    def _cache_bytes(self, context: float) -> float:
        """Keys and values that a request's tokens read, on all GPUs together."""
        target = self.target
        window = min(context, target.sliding_window) if target.sliding_window else context
        return self._cache_layer * ((target.layers - target.sliding_layers) * context + target.sliding_layers * window)

    @cached_property
    def _cache_layer(self) -> int:
        """Bytes of a token in a layer's cache."""
        return kv_token_bytes(replace(self.target, layers=1, sliding_layers=0), None, 1)

    def _busy(self, moved: float, computed: float) -> float:
        read = moved / (self.tp * self.gpu.bandwidth * BANDWIDTH_USED)
        return max(read, computed / (self.tp * self.gpu.flops * FLOPS_USED))

    def _reduce_seconds(self, tokens: int) -> float:
        """Two all-reduces of the tokens' states."""
        if self.tp == 1:
            return 0.0
        crossing = 2 * 2 * tokens * self.target.hidden_size * 2 * (self.tp - 1) / self.tp
        if self.fast_links:
            return FAST_REDUCES + crossing / FAST_LINK
        return SLOW_REDUCES + crossing / SLOW_LINK


@dataclass(frozen=True)
class Measured:
    """Round times that an engine has measured (`tide profile`). Longer contexts cost nothing more here.

    prefill: (seconds of a prompt of one token, seconds of each further token), from the largest passes measured.
    """

    rounds: RoundTimes
    prefill: tuple[float, float]

    @classmethod
    def of(cls, profile: Profile) -> Measured:
        """TideError where it lacks the times of the target's passes, as one from a GPU does."""
        passes = sorted(
            (batch * (steps + 1), sum(parts.get(name, 0.0) for name in ("verify", "extend")))
            for (batch, steps), parts in profile.parts.items()
            if steps and "verify" in parts
        )
        if len(passes) < 2:
            raise TideError("the profile does not tell the target's passes from the draft's", why="it is from a GPU")
        (few, fast), (many, slow) = passes[0], passes[-1]
        each = max(0.0, slow - fast) / (many - few)
        return cls(RoundTimes(profile.cells), (max(0.0, fast - few * each) + each, each))

    def round_seconds(self, batch: int, steps: int, context: float = 0.0) -> float:
        return self.rounds.round_seconds(batch, steps)

    def prefill_seconds(self, tokens: int) -> float:
        first, each = self.prefill
        return first + each * (tokens - 1) if tokens else 0.0


def joined_fast(gpus: Sequence[Gpu], inventory: Inventory) -> bool:
    """Whether all of the GPUs reach each other over NVLink or XGMI; one alone does."""
    return all(inventory.link(*pair) in FAST_LINKS for pair in itertools.combinations(gpus, 2))
