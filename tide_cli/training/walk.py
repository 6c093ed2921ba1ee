"""Acceptance length without an engine: walk stored sequences the way SGLang's greedy chain would have.

In each round the draft starts from the target's states of the committed text and proposes `steps` tokens, fed with its
own proposals; the round ends with as many of them as agree with the text, plus one token of the target. What the target
went on to say is the text itself, sampled or not: a proposal is accepted exactly when it equals the sampled token.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from specforge.modeling.draft import Eagle3DraftModel
from specforge.modeling.draft.llama3_eagle import apply_rotary_pos_emb, repeat_kv
from torch import Tensor

from tide_cli.adaptation.gate import Walk
from tide_cli.spool.samples import Sample


@torch.no_grad()
def walk(draft: Eagle3DraftModel, sample: Sample, steps: int) -> Walk | None:
    """Tokens emitted and rounds needed for one sample; None where it holds nothing to predict.

    Counted as the engine does: completion tokens / verify steps, so that the token which the prefill gave counts as
    a token but not as a round.
    """
    if not predicted(sample):
        return None
    start = _start(sample)
    accepted = accepted_drafts(draft, sample.tokens, sample.aux, start - 1, steps).tolist()
    committed, rounds = start, 0
    while committed < len(sample.tokens) - 1:
        committed += accepted[committed - start] + 1
        rounds += 1
    return Walk(tokens=len(sample.tokens) - start, rounds=rounds)


def predicted(sample: Sample) -> bool:
    """Whether a draft has anything to predict in a sample."""
    return bool(sample.loss_mask.any()) and _start(sample) < len(sample.tokens) - 1


def _start(sample: Sample) -> int:
    """Row of the first generated token, of those that have one before them."""
    return max(len(sample.tokens) - int(sample.loss_mask.sum()), 1)


@torch.no_grad()
def accepted_drafts(draft: Eagle3DraftModel, tokens: Tensor, aux: Tensor, start: int, steps: int) -> Tensor:
    """[T - 1 - start] int64: how many of `steps` proposals agree with the text, for a round from each row ≥ start.

    tokens [T] int64, aux [T, 3H]. Row t knows the target's states up to t and the token t + 1; its proposals stand for
    the tokens t + 2, t + 3, … All starts are walked side by side; a chain leaves as soon as it has missed.
    """
    device = draft.fc.weight.device
    tokens, aux = tokens.to(device), aux.to(device, draft.fc.weight.dtype)
    count = len(tokens) - 1  # the last row's own continuation is not stored
    layer = _Layer(draft, draft.project_hidden_states(aux[:count]), tokens[1:], start)
    rows = torch.arange(start, count, device=device)
    accepted = torch.zeros(len(rows), dtype=torch.int64, device=device)
    text = F.pad(tokens, (0, steps + 1), value=-1)  # proposals beyond the stored text are misses
    hidden = layer.first()
    for depth in range(steps):
        proposal = draft.compute_logits(hidden).argmax(-1)
        token = proposal + draft.d2t[proposal]
        hit = token == text[rows + 2 + depth]
        accepted[rows[hit] - start] += 1
        if depth == steps - 1 or not hit.any():
            break
        rows, hidden = rows[hit], layer.deeper(token[hit], hidden[hit], rows[hit], hit)
    return accepted.cpu()


class _Layer:
    """The draft's one layer on a sequence [N rows], then on the chains that still live."""

    def __init__(self, draft: Eagle3DraftModel, hidden: Tensor, tokens: Tensor, start: int) -> None:
        self.layer, self.attention = draft.midlayer, draft.midlayer.self_attn
        self.embed = draft.embed_input_ids
        self.start = start
        self.hidden, self.tokens = hidden, tokens
        self.own: list[tuple[Tensor, Tensor]] = []  # keys, values of the proposals: [heads, chains, head_dim]
        self.keys = self.values = hidden.new_empty(0)

    def first(self) -> Tensor:
        """Hidden states [N - start, H] of every start row."""
        count = len(self.tokens)
        rows = torch.arange(count, device=self.hidden.device)
        query, self.keys, self.values = self._project(self.tokens, self.hidden, rows, depth=0)
        scores = self._scores(query[:, self.start :], rows[self.start :])
        return self._finish(scores.softmax(-1, torch.float32).to(query.dtype) @ self.values, self.hidden[self.start :])

    def deeper(self, tokens: Tensor, hidden: Tensor, rows: Tensor, alive: Tensor) -> Tensor:
        """Next hidden states [chains, H] after the proposals `tokens`; `alive` picks chains from the last call's."""
        self.own = [(key[:, alive], value[:, alive]) for key, value in self.own]
        query, key, value = self._project(tokens, hidden, rows, depth=len(self.own) + 1)
        self.own.append((key, value))
        scale = 1 / math.sqrt(query.shape[-1])
        to_own = torch.stack([(query * k).sum(-1) * scale for k, _ in self.own], -1)
        weights = torch.cat([self._scores(query, rows), to_own], -1).softmax(-1, torch.float32).to(query.dtype)
        count = self.keys.shape[1]
        mixed = weights[..., :count] @ self.values
        for i, (_, v) in enumerate(self.own):
            mixed = mixed + weights[..., count + i, None] * v
        return self._finish(mixed, hidden)

    def _scores(self, query: Tensor, rows: Tensor) -> Tensor:
        scores = query @ self.keys.transpose(1, 2) / math.sqrt(query.shape[-1])
        later = torch.arange(self.keys.shape[1], device=rows.device)[None] > rows[:, None]
        return scores.masked_fill(later, torch.finfo(scores.dtype).min)

    def _project(self, tokens: Tensor, hidden: Tensor, rows: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        attention = self.attention
        embeds = self.layer.input_layernorm(self.embed(tokens).to(hidden.dtype))
        mixed = torch.cat([embeds, self.layer.hidden_norm(hidden)], -1)[None]
        heads, groups = attention.num_heads, attention.num_key_value_heads
        query = attention.q_proj(mixed).view(1, -1, heads, attention.head_dim).transpose(1, 2)
        key = attention.k_proj(mixed).view(1, -1, groups, attention.head_dim).transpose(1, 2)
        value = attention.v_proj(mixed).view(1, -1, groups, attention.head_dim).transpose(1, 2)
        cos, sin = attention.rotary_emb(query, seq_len=int(rows[-1]) + depth + 1)
        query, key = apply_rotary_pos_emb(query, key, cos, sin, rows[None] + depth)
        repeats = attention.num_key_value_groups
        return query[0], repeat_kv(key, repeats)[0], repeat_kv(value, repeats)[0]

    def _finish(self, mixed: Tensor, residual: Tensor) -> Tensor:
        hidden = residual + self.attention.o_proj(mixed.transpose(0, 1).reshape(len(residual), -1))
        return hidden + self.layer.mlp(self.layer.post_attention_layernorm(hidden))
