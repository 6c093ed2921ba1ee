"""Every name of SGLang that TIDE hooks or supplies, with the parameters it counts on, and the check of them.

SGLang swallows exceptions of plugins and of hooks that do not apply, so a moved name would go unnoticed: an
engine that serves but captures nothing. The plugin therefore checks this table before it registers anything.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SGLANG_VERSION = "0.5.23"


@dataclass(frozen=True)
class HookPoint:
    """One name in SGLang: dotted target, the parameters TIDE relies on (in order), and what it is for."""

    target: str
    parameters: tuple[str, ...]
    purpose: str


WORKER_INIT = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.__init__",
    ("self", "server_args", "gpu_id", "nccl_port", "target_worker"),
    "capture and speculation: keep the target's last hidden states, open the spool, put TIDE's policy in place",
)
WORKER_FORWARD = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation",
    ("self", "batch"),
    "capture: take aux and final states of each forward",
)
WORKER_VERIFY = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.verify", ("self", "batch"), "speculation: time of the target"
)
DRAFT_STEPS = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft", ("self", "batch"), "speculation: time of the draft"
)
DRAFT_PREFILL = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_prefill",
    ("self", "batch", "target_hidden_states", "next_token_ids"),
    "speculation: a draft that reads a prompt and need not propose",
)
DRAFT_EXTEND = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode",
    ("self", "batch", "batch_result"),
    "speculation: time of the draft's catching up",
)
TRIVIAL_INPUT = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2._build_trivial_verify_input",
    ("self", "batch"),
    "speculation: a round of 0 steps as plain decoding",
)
SKIPPED_EXTEND = HookPoint(
    "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2._stub_skipped_draft_extend",
    ("self", "batch", "batch_output"),
    "speculation: a draft that catches up later",
)
ADAPTIVE_STEPS = HookPoint(
    "sglang.srt.speculative.adaptive_runtime_state.AdaptiveController.activate_step_by_batch",
    ("self", "batch_size"),
    "speculation: the policy is asked in each round",
)
ADAPTIVE_CONTROLLER = HookPoint(
    "sglang.srt.speculative.adaptive_runtime_state.AdaptiveController.__init__",
    ("self", "worker", "policy"),
    "speculation: the policy's place",
)
RESULT_PREFILL = HookPoint(
    "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
    ".process_batch_result_prefill",
    ("self", "batch", "result"),
    "capture: notice requests that end with their prefill",
)
RESULT_DECODE = HookPoint(
    "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
    ".process_batch_result_decode",
    ("self", "batch", "result"),
    "capture: notice finished requests",
)
UPDATE_HANDLERS = HookPoint(
    "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController._update_handlers",
    ("self",),
    "swap: accept tide_draft on /set_internal_state",
)
STATE_READBACK = HookPoint(
    "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController._add_speculative",
    ("self", "state"),
    "swap: report the served draft version on /server_info",
)
PREFIX_NAMESPACE = HookPoint(
    "sglang.srt.managers.scheduler.Scheduler._maybe_namespace_elastic_radix_cache",
    ("self", "req"),
    "swap: no prefix that another draft has cached",
)
FILL_IDS = HookPoint(
    "sglang.srt.managers.schedule_batch.Req.get_fill_ids", ("self",), "capture: the token ids of a prefill"
)
REQUEST = HookPoint(
    "sglang.srt.managers.schedule_batch.Req.__init__", ("routing_key",), "capture: the label that the client gave"
)
REQUEST_CHECK = HookPoint(
    "sglang.srt.managers.tokenizer_manager.TokenizerManager._validate_one_request",
    ("self", "obj", "input_ids"),
    "requests: refuse what would end the scheduler",
)
REQUEST_COUNT = HookPoint(
    "sglang.srt.managers.io_struct.GenerateReqInput._handle_parallel_sampling",
    ("self",),
    "requests: refuse one that stands for too many",
)
DRAFT_DECODE_BACKEND = HookPoint(
    "sglang.srt.speculative.draft_utils.DraftBackendFactory.create_decode_backend",
    ("self",),
    "CPU: attention of the draft's decode steps",
)
DRAFT_EXTEND_BACKEND = HookPoint(
    "sglang.srt.speculative.draft_utils.DraftBackendFactory.create_draft_extend_backend",
    ("self",),
    "CPU: attention of draft-extend",
)
VERIFY_GREEDY = HookPoint(
    "sglang.srt.speculative.eagle_utils._verify_uses_greedy",
    ("is_all_greedy",),
    "CPU: sample where a request asks for it",
)
CHAIN_SAMPLING = HookPoint(
    "sglang.srt.speculative.eagle_utils.tree_speculative_sampling_target_only", (), "CPU: sampling in verify"
)
TOP_K_RENORM = HookPoint("sglang.srt.speculative.eagle_utils.top_k_renorm_prob", (), "CPU: top-k in verify")
TOP_P_RENORM = HookPoint("sglang.srt.speculative.eagle_utils.top_p_renorm_prob", (), "CPU: top-p in verify")
LINEAR_LOADED = HookPoint(
    "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.process_weights_after_loading",
    ("self", "layer"),
    "CPU: pack weights once",
)
LINEAR_APPLY = HookPoint(
    "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply",
    ("self", "layer", "x", "bias"),
    "CPU: products with packed weights",
)
LM_HEAD = HookPoint(
    "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
    ("self", "hidden_states", "lm_head", "embedding_bias"),
    "CPU: product with the packed head",
)
ROTARY = HookPoint(
    "sglang.srt.layers.rotary_embedding.base.RotaryEmbedding.forward_native",
    ("self", "positions", "query", "key", "offsets", "fused_set_kv_buffer_arg"),
    "CPU: rotary embedding in few calls",
)
RMS_NORM = HookPoint(
    "sglang.srt.layers.layernorm.RMSNorm.forward_native",
    ("self", "x", "residual", "post_residual_addition", "quant_linear"),
    "CPU: norm in few calls",
)
ATTENTION_REGISTRY = HookPoint(
    "sglang.srt.layers.attention.attention_registry.register_attention_backend",
    ("name",),
    "CPU: an attention backend that knows the EAGLE modes",
)

REQUESTS = (REQUEST_CHECK, REQUEST_COUNT)
SPECULATION = (
    WORKER_INIT,
    WORKER_FORWARD,
    WORKER_VERIFY,
    DRAFT_STEPS,
    DRAFT_PREFILL,
    DRAFT_EXTEND,
    TRIVIAL_INPUT,
    SKIPPED_EXTEND,
    ADAPTIVE_STEPS,
    ADAPTIVE_CONTROLLER,
    RESULT_PREFILL,
    RESULT_DECODE,
    UPDATE_HANDLERS,
    STATE_READBACK,
    PREFIX_NAMESPACE,
    FILL_IDS,
    REQUEST,
)
CPU = (
    DRAFT_DECODE_BACKEND,
    DRAFT_EXTEND_BACKEND,
    VERIFY_GREEDY,
    CHAIN_SAMPLING,
    TOP_K_RENORM,
    TOP_P_RENORM,
    LINEAR_LOADED,
    LINEAR_APPLY,
    LM_HEAD,
    ROTARY,
    RMS_NORM,
    ATTENTION_REGISTRY,
)


def problems(points: Iterable[HookPoint], resolve: Callable[[str], object] = pkgutil.resolve_name) -> list[str]:
    """One line for each point that is gone or takes other parameters; empty when all are as expected."""
    found = []
    for point in points:
        try:
            target = resolve(point.target)
        except (ImportError, AttributeError) as error:
            found.append(f"{point.target} is missing ({error}); needed for {point.purpose}")
            continue
        if not point.parameters:
            continue
        present = [name for name in _parameters(target) if name in point.parameters]
        if tuple(present) != point.parameters:
            found.append(
                f"{point.target} takes ({', '.join(_parameters(target))}), "
                f"expected ({', '.join(point.parameters)}, …); needed for {point.purpose}"
            )
    return found


def _parameters(target: object) -> list[str]:
    return list(inspect.signature(target).parameters)
