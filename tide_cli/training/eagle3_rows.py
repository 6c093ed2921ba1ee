"""SpecForge's EAGLE3 objective, evaluated only where it counts.

SpecForge runs the draft's head, its softmax and the teacher over every row of the padded batch and multiplies the
rows of prompts and padding with zero afterwards. On a CPU the head is more than half of the work, so here the rows
that count are gathered first. Value and gradient are those of `OnlineEagle3Model`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from specforge.algorithms.eagle3.model import OnlineEagle3Model
from torch import Tensor
from transformers.cache_utils import DynamicCache


def _moved(rows: Tensor, count: int) -> Tensor:
    """[B, T], each row's value that of the row `count` further on; zeros where there is none."""
    return F.pad(rows[:, count:], (0, min(count, rows.shape[1])))


class _SoftCrossEntropy(torch.autograd.Function):
    """-sum(p · log softmax(logits)) over [N, V] rows; p sums to one in each, so that the gradient is softmax - p."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, teacher: Tensor) -> Tensor:
        scores = logits.float()
        log_z = torch.logsumexp(scores, -1, keepdim=True)
        loss = (log_z.squeeze(-1) - (teacher * scores).sum(-1)).sum()
        ctx.save_for_backward(logits, log_z, teacher)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        logits, log_z, teacher = ctx.saved_tensors
        slope = logits.to(torch.float32, copy=True).sub_(log_z).exp_().sub_(teacher).mul_(grad)
        return slope.to(logits.dtype), None


class GeneratedRowsEagle3(OnlineEagle3Model):
    """Drop-in for `OnlineEagle3Model` behind `Eagle3TrainStrategy(compact_teacher=True)`.

    One difference in what is computed: whether a row's target token lies in the draft's vocabulary is decided by the
    token that really followed, which is known, and not by the argmax of the full head, which is the same token under
    greedy decoding and costs a product with all V rows. A row whose following token was not stored does not count.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,  # [B, T] int64, shifted left by one
        attention_mask: Tensor,  # [B, T]
        target: None,
        loss_mask: Tensor,  # [B, T, 1]
        hidden_states: Tensor,  # [B, T, 3H]
        position_ids: Tensor | None = None,
        target_hidden_for_compact: Tensor | None = None,  # [B, T, H], shifted left by one
        target_head_weight: Tensor | None = None,  # [V, H]
        compact_teacher_chunk_size: int | None = None,
    ) -> tuple[list[Tensor], ...]:
        draft = self.draft_model
        batch, length, _ = hidden_states.shape
        counts, teacher, teacher_row, wanted = self._teacher(
            input_ids, attention_mask, loss_mask, target_hidden_for_compact, target_head_weight
        )
        hidden = draft.project_hidden_states(hidden_states)
        positions = torch.arange(length, device=hidden.device)[None]
        mask, cache, key_values = attention_mask, [[], []], None
        if self.attention_backend == "flex_attention":
            cache, key_values = None, DynamicCache()
        else:
            mask = draft.prepare_decoder_attention_mask(attention_mask, hidden, batch, length, 0)
        ids = input_ids
        losses, rates, accuracies, hits, rows = [], [], [], [], []
        for depth in range(self.length):
            embeds = draft.embed_input_ids(ids).to(hidden.dtype)
            hidden = draft.backbone(
                input_embeds=embeds,
                hidden_states=hidden,
                cache_hidden=cache,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=key_values,
                use_cache=True,
            )
            here = _moved(counts, depth)  # row t is judged by what row t + depth predicts
            picked = _moved(teacher_row, depth)[here]
            logits = draft.compute_logits(hidden[here])
            losses.append(_SoftCrossEntropy.apply(logits, teacher[picked]) / (batch * length))
            with torch.no_grad():
                hits.append((logits.gather(-1, wanted[picked][:, None]).squeeze(-1) >= logits.amax(-1)).sum().float())
                rows.append(here.sum().float().clamp_min(1))
                accuracies.append(hits[-1] / rows[-1])
                rates.append(accuracies[-1])
            ids = _moved(ids, 1)
        sums = [loss.detach() for loss in losses]
        return losses, rates, accuracies, hits, rows, sums, [torch.ones_like(loss) for loss in sums]

    def map_changed(self) -> None:
        """The draft's vocabulary map was written."""
        self._head_rows = None

    @torch.no_grad()
    def _teacher(
        self, ids: Tensor, attention: Tensor, loss_mask: Tensor, hidden: Tensor, head: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows that count [B, T], teacher over the draft's vocabulary [N, D], index into it [B, T], wanted ids [N]."""
        draft = self.draft_model
        following = _moved(ids, 1)
        stored = _moved(attention, 2).bool()  # the token two places on is in the sample
        counts = loss_mask.squeeze(-1).bool() & stored & draft.t2d[following]
        index = torch.zeros_like(ids)
        index[counts] = torch.arange(int(counts.sum()), device=ids.device)
        teacher = torch.softmax(F.linear(hidden[counts], self._teacher_head(head)).float(), -1)
        rank = draft.t2d.cumsum(0) - 1  # target id -> draft id, for ids in the draft's vocabulary
        return counts, teacher, index, rank[following[counts]]

    def _teacher_head(self, head: Tensor) -> Tensor:
        """The head's rows of the draft's vocabulary [D, H]; gathered once for each map."""
        if getattr(self, "_head_rows", None) is None:
            self._head_rows = head[self.draft_model.t2d]
        return self._head_rows
