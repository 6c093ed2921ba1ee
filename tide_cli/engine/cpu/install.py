"""Registers the CPU support with SGLang's hook registry."""

from __future__ import annotations

from sglang.srt.layers.attention import attention_registry
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative import eagle_utils

from tide_cli.engine import hook_points as points
from tide_cli.engine.cpu import elementwise, packed_linear, sampling

ATTENTION_BACKEND = "torch_native"


def install_model() -> None:
    """Packed products for every unquantised linear layer and both heads, few calls elsewhere, and the attention."""
    HookRegistry.register(points.LINEAR_LOADED.target, _pack_loaded, HookType.AFTER)
    HookRegistry.register(points.LINEAR_APPLY.target, _apply_packed, HookType.AROUND)
    HookRegistry.register(points.LM_HEAD.target, _packed_head, HookType.AROUND)
    HookRegistry.register(points.ROTARY.target, elementwise.rotary_embedding, HookType.AROUND)
    HookRegistry.register(points.RMS_NORM.target, elementwise.rms_norm, HookType.AROUND)
    attention_registry.register_attention_backend(ATTENTION_BACKEND)(_attention_backend)


def install_speculation() -> None:
    """EAGLE on a CPU: attention of the draft, sampling in verify."""
    HookRegistry.register(points.DRAFT_DECODE_BACKEND.target, _draft_decode_backend, HookType.REPLACE)
    HookRegistry.register(points.DRAFT_EXTEND_BACKEND.target, _draft_extend_backend, HookType.REPLACE)
    HookRegistry.register(points.VERIFY_GREEDY.target, sampling.verify_uses_greedy, HookType.REPLACE)
    # On a CPU these three names are None, and HookRegistry puts a replacement wherever the original object is found,
    # that is in place of every None of every module: they are supplied by plain assignment.
    eagle_utils.tree_speculative_sampling_target_only = sampling.chain_speculative_sampling_target_only
    eagle_utils.top_k_renorm_prob = sampling.top_k_renorm_prob
    eagle_utils.top_p_renorm_prob = sampling.top_p_renorm_prob


def _attention_backend(runner):
    from tide_cli.engine.cpu.attention import CpuAttentionBackend

    return CpuAttentionBackend(runner)


def _draft_decode_backend(factory):
    from tide_cli.engine.cpu.attention import CpuMultiStepDraftBackend

    # with one step the only draft token comes from draft-extend
    if factory.speculative_num_steps <= 1:
        return None
    return CpuMultiStepDraftBackend(factory.draft_model_runner, factory.speculative_num_steps)


def _draft_extend_backend(factory):
    from tide_cli.engine.cpu.attention import CpuAttentionBackend

    return CpuAttentionBackend(factory.draft_model_runner)


def _pack_loaded(result, method, layer):
    packed_linear.pack(layer)
    return result


def _apply_packed(original, method, layer, x, bias=None):
    packed = packed_linear.linear(layer, x, bias)
    return original(method, layer, x, bias) if packed is None else packed


def _packed_head(original, processor, hidden_states, lm_head, embedding_bias=None, *, out=None):
    # Heads come as linear layers or as (tied) embeddings, which no loading step processes: pack at first use.
    if embedding_bias is None and not processor.use_fp32_lm_head:
        packed_linear.ensure_packed(lm_head)
        packed = packed_linear.linear(lm_head, hidden_states.to(lm_head.weight.dtype), None)
        if packed is not None:
            return packed
    return original(processor, hidden_states, lm_head, embedding_bias, out=out)
