"""Sampling in verify: the tokens that come out are distributed as the target's own, whatever was drafted."""

from __future__ import annotations

import torch
from scipy import stats

from tide_cli.engine.cpu.sampling import (
    chain_speculative_sampling_target_only,
    top_k_renorm_prob,
    top_p_renorm_prob,
)

VOCABULARY = 7


def verify(target: torch.Tensor, candidates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """target [bs, n, V], candidates [bs, n] -> predicts [bs, n], accept_index [bs, n], accepted drafts [bs]."""
    batch, n, _ = target.shape
    predicts = torch.full((batch * n,), -1, dtype=torch.int32)
    accept_index = torch.full((batch, n), -1, dtype=torch.int32)
    accepted = torch.zeros(batch, dtype=torch.int32)
    index = torch.arange(batch * n).view(batch, n)
    chain_speculative_sampling_target_only(
        predicts, accept_index, accepted, candidates, index, None, None,
        torch.rand(batch, n), torch.rand(batch), target, torch.zeros_like(target),
    )  # fmt: skip
    return predicts.view(batch, n), accept_index, accepted


def fit(seen: torch.Tensor, probabilities: torch.Tensor) -> float:
    """p-value of the counts `seen` under the distribution."""
    expected = probabilities.double() / probabilities.double().sum() * seen.sum()
    return stats.chisquare(seen.double(), expected).pvalue


def test_each_emitted_token_follows_the_target() -> None:
    """Drafts from another distribution; token i counts wherever tokens 0…i-1 were drafted ones (its condition)."""
    torch.manual_seed(1)
    rounds, n = 40_000, 4
    one = torch.rand(n, VOCABULARY) + 0.05
    one /= one.sum(-1, keepdim=True)
    target = one.expand(rounds, n, VOCABULARY)
    draft = torch.rand(n - 1, VOCABULARY) + 0.05
    drafted = torch.stack([torch.multinomial(draft[i], rounds, replacement=True) for i in range(n - 1)], dim=1)
    candidates = torch.cat((torch.zeros(rounds, 1, dtype=torch.long), drafted), dim=1)
    predicts, accept_index, accepted = verify(target, candidates)

    assert ((accept_index >= 0).sum(1) == accepted + 1).all()
    for i in range(n):
        emitted = predicts[accepted >= i, i]
        seen = torch.bincount(emitted.long(), minlength=VOCABULARY)
        assert fit(seen, one[i]) > 1e-3, f"token {i} of the chain"


def test_the_pair_of_tokens_follows_the_target() -> None:
    """Two tokens of which the second depends on the first, with a draft that is often wrong."""
    torch.manual_seed(2)
    rounds, size = 60_000, 4
    first = torch.tensor([0.5, 0.3, 0.15, 0.05])
    second = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.25] * 4, [0.05, 0.05, 0.1, 0.8]])
    drafted = torch.randint(0, size, (rounds, 1))
    target = torch.stack((first.expand(rounds, size), second[drafted.squeeze(1)]), dim=1)
    predicts, _, accepted = verify(target, torch.cat((torch.zeros_like(drafted), drafted), dim=1))
    pair = predicts[:, 0].long() * size + predicts[:, 1]
    kept = accepted == 1  # only then the second token was sampled after this first one
    for token in range(size):
        seen = torch.bincount(pair[kept & (predicts[:, 0] == token)] % size, minlength=size)
        assert fit(seen, second[token]) > 1e-3
    seen_first = torch.bincount(predicts[:, 0].long(), minlength=size)
    assert fit(seen_first, first) > 1e-3


def test_a_certain_target_accepts_what_it_would_say_and_corrects_the_rest() -> None:
    target = torch.nn.functional.one_hot(torch.tensor([[3, 1, 4], [3, 1, 4]]), VOCABULARY).float()
    predicts, accept_index, accepted = verify(target, torch.tensor([[0, 3, 1], [0, 3, 2]]))
    assert accepted.tolist() == [2, 1]
    assert predicts[0].tolist() == [3, 1, 4]
    assert predicts[1, :2].tolist() == [3, 1]
    assert accept_index.tolist() == [[0, 1, 2], [3, 4, -1]]


def test_top_k_keeps_the_k_most_probable() -> None:
    probs = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.1, 0.4, 0.3, 0.2]])
    kept = top_k_renorm_prob(probs, torch.tensor([2, 4]))
    torch.testing.assert_close(kept, torch.tensor([[0, 4 / 7, 3 / 7, 0], [0.1, 0.4, 0.3, 0.2]]))


def test_top_p_keeps_the_smallest_set_with_that_mass() -> None:
    probs = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).expand(3, 4)
    kept = top_p_renorm_prob(probs, torch.tensor([0.4, 0.41, 1.0]))
    torch.testing.assert_close(kept, torch.tensor([[0, 1.0, 0, 0], [0, 4 / 7, 3 / 7, 0], [0.1, 0.4, 0.3, 0.2]]))
