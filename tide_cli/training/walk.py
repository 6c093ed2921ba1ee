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
from specforge.modeling.draft.llama3_eagle import apply_rotary_pos_emb
from torch import Tensor

from tide_cli.adaptation.gate import Walk
from tide_cli.hardware.memory import walk_rows
from tide_cli.spool.samples import Sample, SampleInfo
from tide_cli.targets.shape import DraftShape


@torch.no_grad()
def walk(draft: Eagle3DraftModel, sample: Sample, steps: int) -> Walk | None:
    """Tokens emitted and rounds needed for one sample; None where it holds nothing to predict.

    Counted as the engine does: completion tokens / verify steps, so that the token which the prefill gave counts as
    a token but not as a round.
    """
    if not predicted(sample.info):
        return None
    start = _start(sample.info)
    accepted = accepted_drafts(draft, sample.tokens, sample.aux, start - 1, steps).tolist()
    committed, rounds = start, 0
    while committed < len(sample.tokens) - 1:
        committed += accepted[committed - start] + 1
        rounds += 1
    return Walk(tokens=len(sample.tokens) - start, rounds=rounds)


def predicted(info: SampleInfo) -> bool:
    """Whether a draft has anything to predict in a sample."""
    return info.generated > 0 and _start(info) < info.tokens - 1


def _start(info: SampleInfo) -> int:
    """Row of the first generated token, of those that have one before them."""
    return max(info.tokens - info.generated, 1)


@torch.no_grad()
def accepted_drafts(
    draft: Eagle3DraftModel, tokens: Tensor, aux: Tensor, start: int, steps: int, at_once: int | None = None
) -> Tensor:
    """[T - 1 - start] int64: how many of `steps` proposals agree with the text, for a round from each row ≥ start.

    tokens [T] int64, aux [T, 3H]. Row t knows the target's states up to t and the token t + 1; its proposals stand for
    the tokens t + 2, t + 3, … Starts are walked side by side, `at_once` rows of them (None: as many as the memory plan
    allows for), since their scores have a column for each row before; a chain leaves as soon as it has missed.
    """
    weight = draft.fc.weight
    tokens = tokens.to(weight.device)
    count = len(tokens) - 1  # the last row's own continuation is not stored
    text = F.pad(tokens, (0, steps + 1), value=-1)  # proposals beyond the stored text are misses
    accepted = torch.zeros(count - start, dtype=torch.int64, device=weight.device)
    layer = _Layer(draft, count)
    for rows in torch.arange(count, device=weight.device).split(at_once or _rows_at_once(draft, count)):
        states = aux[int(rows[0]) : int(rows[-1]) + 1].to(weight.device, weight.dtype)
        hidden = draft.project_hidden_states(states)
        query, starts = layer.read(tokens[rows + 1], hidden, rows), rows >= start
        if not starts.any():
            continue
        rows, hidden = rows[starts], layer.attend(query[:, :, starts], hidden[starts], rows[starts])
        for depth in range(steps):
            proposal = draft.compute_logits(hidden).argmax(-1)
            token = proposal + draft.d2t[proposal]
            hit = token == text[rows + 2 + depth]
            accepted[rows[hit] - start] += 1
            if depth == steps - 1 or not hit.any():
                break
            rows, hidden = rows[hit], layer.deeper(token[hit], hidden[hit], rows[hit], hit)
    return accepted.cpu()


def _rows_at_once(draft: Eagle3DraftModel, count: int) -> int:
    layer = draft.midlayer
    shape = DraftShape(
        hidden_size=draft.fc.out_features,
        intermediate_size=layer.mlp.intermediate_size,
        heads=layer.self_attn.num_heads,
        kv_heads=layer.self_attn.num_key_value_heads,
        head_dim=layer.self_attn.head_dim,
        vocab_size=draft.lm_head.out_features,
    )
    return walk_rows(shape, count)


class _Layer:
    """The draft's one layer: its cache of a sequence of `count` rows, read in order, and chains that go on from it."""

    def __init__(self, draft: Eagle3DraftModel, count: int) -> None:
        self.layer, self.attention = draft.midlayer, draft.midlayer.self_attn
        self.embed = draft.embed_input_ids
        size = (self.attention.num_key_value_heads, count, self.attention.head_dim)
        self.keys, self.values = draft.fc.weight.new_empty(size), draft.fc.weight.new_empty(size)
        self.seen = 0  # rows in it
        self.own: list[tuple[Tensor, Tensor]] = []  # keys, values of the proposals: [kv heads, 1, chains, head_dim]

    def read(self, tokens: Tensor, hidden: Tensor, rows: Tensor) -> Tensor:
        """Take the next rows into the cache; their queries, as `attend` wants them. The chains of before are over."""
        query, key, value = self._project(tokens, hidden, rows, depth=0)
        self.keys[:, rows], self.values[:, rows] = key[:, 0], value[:, 0]
        self.seen, self.own = int(rows[-1]) + 1, []
        return query

    def deeper(self, tokens: Tensor, hidden: Tensor, rows: Tensor, alive: Tensor) -> Tensor:
        """Next hidden states [chains, H] after the proposals `tokens`; `alive` picks chains from the last call's."""
        self.own = [(key[:, :, alive], value[:, :, alive]) for key, value in self.own]
        query, key, value = self._project(tokens, hidden, rows, depth=len(self.own) + 1)
        self.own.append((key, value))
        return self.attend(query, hidden, rows)

    def attend(self, query: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """Hidden states [chains, H] after the layer: each chain attends to the rows up to its own and to its proposals.

        query [kv heads, repeats, chains, head_dim]: those of one kv head are multiplied together, so that its keys and
        values need not be repeated for them.
        """
        groups, repeats, chains, width = query.shape
        scores = (query.reshape(groups, -1, width) @ self.keys[:, : self.seen].mT).view(groups, repeats, chains, -1)
        later = torch.arange(self.seen, device=rows.device) > rows[:, None]
        scores.masked_fill_(later, torch.finfo(scores.dtype).min)
        if self.own:
            scores = torch.cat([scores, torch.stack([(query * key).sum(-1) for key, _ in self.own], -1)], -1)
        weights = scores.div_(math.sqrt(width)).softmax(-1, torch.float32).to(query.dtype)
        mixed = weights[..., : self.seen].reshape(groups, -1, self.seen) @ self.values[:, : self.seen]
        mixed = mixed.view(groups * repeats, chains, width)
        for i, (_, value) in enumerate(self.own):
            mixed += (weights[..., self.seen + i, None] * value).flatten(0, 1)
        hidden = residual + self.attention.o_proj(mixed.transpose(0, 1).reshape(chains, -1))
        return hidden + self.layer.mlp(self.layer.post_attention_layernorm(hidden))

    def _project(self, tokens: Tensor, hidden: Tensor, rows: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each [kv heads, repeats or 1, rows, head_dim]."""
        attention = self.attention
        embeds = self.layer.input_layernorm(self.embed(tokens).to(hidden.dtype))
        mixed = torch.cat([embeds, self.layer.hidden_norm(hidden)], -1)[None]
        heads, groups = attention.num_heads, attention.num_key_value_heads
        query = attention.q_proj(mixed).view(1, -1, heads, attention.head_dim).transpose(1, 2)
        key = attention.k_proj(mixed).view(1, -1, groups, attention.head_dim).transpose(1, 2)
        value = attention.v_proj(mixed).view(1, -1, groups, attention.head_dim).transpose(1, 2)
        cos, sin = attention.rotary_emb(query, seq_len=int(rows[-1]) + depth + 1)
        query, key = apply_rotary_pos_emb(query, key, cos, sin, rows[None] + depth)
        return query[0].unflatten(0, (groups, -1)), key[0][:, None], value[0][:, None]
