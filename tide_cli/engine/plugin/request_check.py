"""Requests that SGLang takes and that end its scheduler, and with it every other request: refused before.

An empty prompt is computed, a token id that the vocabulary does not have is looked up in the embedding, and more
alternatives than it has tokens make `torch.topk` raise (SGLang 0.5.23). One that asks for n answers becomes n requests,
which go on when the client has gone. A test says when SGLang refuses them itself.
"""

from __future__ import annotations

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from tide_cli.engine import hook_points as points

_MOST_ANSWERS = 128  # to one prompt, as in OpenAI's API


def install() -> None:
    """For every process of an engine; the one that takes requests up uses it."""
    HookRegistry.register(points.REQUEST_CHECK.target, after_check, HookType.AFTER)
    HookRegistry.register(points.REQUEST_COUNT.target, after_count, HookType.AFTER)


def after_check(result, manager, obj, input_ids):
    """Raises ValueError, which SGLang answers with 400. input_ids: of the prompt; None where it comes in embeddings."""
    tokens = manager.model_config.vocab_size
    if not input_ids and getattr(obj, "input_embeds", None) is None:
        raise ValueError("the prompt has no token")
    if input_ids and not (min(input_ids) >= 0 and max(input_ids) < tokens):
        raise ValueError(f"the token ids of the prompt must be in [0, {tokens})")
    asked = getattr(obj, "top_logprobs_num", None) or 0  # requests for embeddings have none
    if not 0 <= asked <= tokens:
        raise ValueError(f"{asked} alternatives of a token are asked for (top_logprobs); there are {tokens} tokens")
    return result


def after_count(result, obj):
    """Before the request is multiplied. Raises ValueError, as above."""
    asked = obj.parallel_sample_num
    if not (isinstance(asked, int) and 1 <= asked <= _MOST_ANSWERS):
        raise ValueError(f"n must be in [1, {_MOST_ANSWERS}], it is {asked}")
    return result
