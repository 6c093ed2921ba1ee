"""Requests that SGLang takes and that end its scheduler, and with it every other request: refused before.

More alternatives than the vocabulary has tokens make `torch.topk` raise in the scheduler (SGLang 0.5.23). A test says
when SGLang refuses them itself.
"""

from __future__ import annotations

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from tide_cli.engine import hook_points as points


def install() -> None:
    """For every process of an engine; the one that takes requests up uses it."""
    HookRegistry.register(points.REQUEST_CHECK.target, after_check, HookType.AFTER)


def after_check(result, manager, obj):
    """Raises ValueError, which SGLang answers with 400."""
    tokens, asked = manager.model_config.vocab_size, obj.top_logprobs_num or 0
    if not 0 <= asked <= tokens:
        raise ValueError(f"{asked} alternatives of a token are asked for (top_logprobs); there are {tokens} tokens")
    return result
