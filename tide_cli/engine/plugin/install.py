"""Registers capture, swap and the speculation policy with SGLang's hook registry."""

from __future__ import annotations

import logging

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_parallel

from tide_cli.engine import hook_points as points
from tide_cli.engine.plugin import plain_round, speculation
from tide_cli.engine.plugin.capture import Capture
from tide_cli.engine.plugin.captured import ForwardBatch
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.ranks import number_handler, on_all_ranks
from tide_cli.engine.plugin.swap import DraftSwap

logger = logging.getLogger(__name__)


def install(config: EngineConfig) -> None:
    """Hooks for one engine process. The objects behind them are made with the draft worker, in the scheduler."""
    parts = _Parts(config)
    HookRegistry.register(points.WORKER_INIT.target, parts.after_worker_init, HookType.AFTER)
    HookRegistry.register(points.WORKER_FORWARD.target, parts.around_forward, HookType.AROUND)
    HookRegistry.register(points.TRIVIAL_INPUT.target, parts.around_trivial_input, HookType.AROUND)
    HookRegistry.register(points.WORKER_VERIFY.target, parts.around_verify, HookType.AROUND)
    HookRegistry.register(points.DRAFT_STEPS.target, parts.around_draft, HookType.AROUND)
    HookRegistry.register(points.DRAFT_PREFILL.target, parts.around_draft_prefill, HookType.AROUND)
    HookRegistry.register(points.DRAFT_EXTEND.target, parts.around_extend, HookType.AROUND)
    HookRegistry.register(points.RESULT_PREFILL.target, parts.after_result, HookType.AFTER)
    HookRegistry.register(points.RESULT_DECODE.target, parts.after_decode_result, HookType.AFTER)
    HookRegistry.register(points.UPDATE_HANDLERS.target, parts.after_update_handlers, HookType.AFTER)
    HookRegistry.register(points.STATE_READBACK.target, parts.after_state_readback, HookType.AFTER)
    HookRegistry.register(points.PREFIX_NAMESPACE.target, parts.after_prefix_namespace, HookType.AFTER)


class _Parts:
    """Capture, swap and speculation policy of one scheduler process."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.swap: DraftSwap | None = None
        self.capture: Capture | None = None
        self.before_verify: ForwardBatch | None = None  # of the round whose states are yet to come
        self.speculation: speculation.SpeculationControl | None = None

    def after_worker_init(self, result, worker, *args, **kwargs):
        _require_applied()
        self.swap = DraftSwap(worker, self.config, everywhere=on_all_ranks)
        self.speculation = speculation.install(worker, self.config, self.swap.version)
        if self.config.capture:
            # before any CUDA graph is captured: the graph must produce the last hidden states too
            worker.target_worker.model_runner.model.logits_processor.keep_last_hidden_states = True
            if get_parallel().tp_rank == 0:  # every rank holds the same states: one writes
                self.capture = Capture.start(self.config)
        return result

    def around_forward(self, original, worker, batch, *args, **kwargs):
        prefill = batch.forward_mode.is_extend() or batch.is_extend_in_batch
        if prefill:
            self.speculation.before_prefill(batch.reqs)
        else:
            self.speculation.before_decode(batch.reqs)
        if self.capture is None:
            return original(worker, batch, *args, **kwargs)
        before = self.capture.before_forward(batch)
        self.before_verify = None if prefill else before
        output = original(worker, batch, *args, **kwargs)
        if prefill:
            self.capture.after_forward(before, output)
        return output

    def after_result(self, result, processor, batch, *args, **kwargs):
        if self.capture is not None:
            self.capture.after_result(batch.reqs)
        return result

    def after_decode_result(self, result, processor, batch, output, *args, **kwargs):
        self.speculation.after_result(batch.reqs, output, self.swap.version)
        return self.after_result(result, processor, batch)

    def around_trivial_input(self, original, worker, batch):
        plain = plain_round.plain_input(batch) if self.speculation.deferred is not None else None
        return original(worker, batch) if plain is None else plain

    def around_verify(self, original, worker, batch, *args, **kwargs):
        if isinstance(batch.spec_info, plain_round.PlainInput):
            output = self.speculation.clock.timed("verify", lambda: plain_round.decode(worker, batch))
        else:
            output = self.speculation.clock.timed("verify", lambda: original(worker, batch, *args, **kwargs))
        if self.before_verify is not None:
            # Not at the round's end: target and draft share one pool of graph memory. Where the draft's graph was
            # captured before the target's (every number of steps but the first), its replay may overwrite these.
            before, self.before_verify = self.before_verify, None
            self.capture.after_forward(before, output)
        return output

    def around_draft(self, original, draft_worker, batch, *args, **kwargs):
        self.speculation.catch_up(batch)
        return self.speculation.clock.timed("draft", lambda: original(draft_worker, batch, *args, **kwargs))

    def around_draft_prefill(self, original, draft_worker, batch, states, next_tokens, *args, **kwargs):
        extend = lambda: original(draft_worker, batch, states, next_tokens, *args, **kwargs)  # noqa: E731
        if draft_worker.speculative_num_steps == 0 and self.speculation.deferred is not None:
            return self.speculation.deferred.prefill(extend, batch, states, next_tokens)
        return extend()

    def around_extend(self, original, draft_worker, batch, output, *args, **kwargs):
        if draft_worker.speculative_num_steps == 0 and self.speculation.deferred is not None:
            return self.speculation.deferred.hold(batch, output)
        call = lambda: original(draft_worker, batch, output, *args, **kwargs)  # noqa: E731
        return self.speculation.clock.timed("extend", call)

    def after_update_handlers(self, handlers, controller):
        if self.swap is not None:
            handlers |= self.swap.update_handlers() | self.speculation.update_handlers()
        if self.config.capture:
            # on every rank: one without it would refuse what stands beside it, which the others may wait for it to take
            handlers["tide_erase"] = number_handler(self._erase)
        return handlers

    def _erase(self, number: float) -> None:
        if self.capture is not None:
            self.capture.erase(int(number))

    def after_prefix_namespace(self, result, scheduler, req):
        if self.swap is not None:
            self.swap.begin(req)
        return result

    def after_state_readback(self, result, controller, state):
        if self.swap is not None:
            self.speculation.serves(self.swap.version)
            state["tide"] = self.swap.state() | {
                "run": self.config.run,
                "capture": self.capture.counters() if self.capture else None,
                "fill": self.capture.fill() if self.capture else None,
                "speculation": self.speculation.state(),
            }
        return result


def _require_applied() -> None:
    """SGLang logs a hook that it could not apply and goes on: make that an error, in the scheduler, at start."""
    missing = [target for target in HookRegistry._hooks if target not in HookRegistry._patched]
    if missing:
        raise RuntimeError(f"tide: SGLang did not apply the hooks on {', '.join(missing)}")
