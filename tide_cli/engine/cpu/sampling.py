"""Sampling in EAGLE verify on a CPU: SGLang 0.5.23 has only GPU kernels for it and would silently verify greedily.

Signatures are those of sglang's `tree_speculative_sampling_target_only`, `top_k_renorm_prob` and
`top_p_renorm_prob`; drafts are chains (topk 1).
"""

from __future__ import annotations

import torch
from sgl_kernel import commit_chain


def verify_uses_greedy(*, is_all_greedy: bool, **_platform: bool) -> bool:
    """Commit the argmax only where every request of the batch asked for it."""
    return is_all_greedy


def chain_speculative_sampling_target_only(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    uniform_samples,
    uniform_samples_for_final_sampling,
    target_probs,
    draft_probs,
    threshold_single=1.0,
    threshold_acc=1.0,
    deterministic=True,
) -> None:
    """Verify chains so that the emitted tokens are distributed as the target's own.

    candidates [bs, n] with the last committed token first; target_probs [bs, n, V]; coins uniform_samples [bs, n]
    and uniform_samples_for_final_sampling [bs] in [0, 1). predicts [bs*n], accept_index [bs, n] and
    accept_token_num [bs] are written. A draft is a point mass, so it is accepted with the target's probability of
    it; after a rejection the next token comes from the target's distribution without the rejected one.
    """
    batch, n, vocabulary = target_probs.shape
    drafted = candidates[:, 1:].long()
    p_drafted = target_probs[:, :-1].gather(2, drafted.unsqueeze(2)).squeeze(2)
    agreed = (uniform_samples[:, : n - 1] < p_drafted / max(threshold_acc, 1e-9)) | (p_drafted >= threshold_single)
    accepted = agreed.long().cumprod(dim=1).sum(dim=1)

    rest = target_probs[torch.arange(batch), accepted].double()
    rejected = accepted < n - 1
    rest[rejected, drafted[rejected, accepted[rejected]]] = 0.0
    cumulative = rest.cumsum(dim=1)
    draw = uniform_samples_for_final_sampling.double().unsqueeze(1) * cumulative[:, -1:]
    final = torch.searchsorted(cumulative, draw, right=True).squeeze(1).clamp_(max=vocabulary - 1)

    following = torch.cat((drafted, drafted.new_zeros(batch, 1)), dim=1)
    following[torch.arange(batch), accepted] = final
    commit_chain(predicts, accept_index, accept_token_num, retrive_index, accepted, following)


def top_k_renorm_prob(probs: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """probs [rows, V], top_k [rows] -> probs with all but the k most probable tokens at 0, summing to 1."""
    size = probs.shape[-1]
    limit = top_k.long().clamp(1, size)
    if bool((limit == size).all()):
        return probs
    ordered, index = probs.sort(dim=-1, descending=True)
    kept = torch.arange(size) < limit.unsqueeze(1)
    return _renormalised(ordered, index, kept)


def top_p_renorm_prob(probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """probs [rows, V], top_p [rows] -> the smallest set of most probable tokens with mass top_p, summing to 1."""
    if bool((top_p >= 1).all()):
        return probs
    ordered, index = probs.sort(dim=-1, descending=True)
    kept = ordered.cumsum(dim=-1) - ordered < top_p.unsqueeze(1)
    return _renormalised(ordered, index, kept)


def _renormalised(ordered: torch.Tensor, index: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(ordered).scatter_(1, index, ordered * kept)
    return out / out.sum(dim=-1, keepdim=True)
