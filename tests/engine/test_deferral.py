"""What the draft reads later: which rows of which request, at which positions. Its forward is written down, not run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tide_cli.engine.plugin import deferral
from tide_cli.engine.plugin.deferral import MOST_HELD, DeferredExtend

H = 2


class Draft:
    """A worker whose draft notes what it is given to read, and a batch of requests in plain rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[SimpleNamespace] = []
        monkeypatch.setattr(deferral.ForwardBatch, "init_new", lambda part, runner, **options: part)
        runner = SimpleNamespace(forward=self._forward)
        self.worker = SimpleNamespace(
            draft_worker=SimpleNamespace(draft_runner=runner), _stub_skipped_draft_extend=lambda batch, result: None
        )
        self.deferred = DeferredExtend(self.worker)
        self.table = torch.arange(4 * 1000).view(4, 1000)  # the slot of request r's position p is 1000 r + p
        self.requests: dict[str, list[int]] = {}  # rid: [row of the table, length]

    def add(self, rid: str, row: int, length: int) -> None:
        self.requests[rid] = [row, length]
        self.deferred.forget([SimpleNamespace(rid=rid)])

    def batch(self) -> SimpleNamespace:
        return SimpleNamespace(
            reqs=[SimpleNamespace(rid=rid) for rid in self.requests],
            seq_lens=torch.tensor([length for _, length in self.requests.values()]),
            req_pool_indices=torch.tensor([row for row, _ in self.requests.values()]),
            req_to_token_pool=SimpleNamespace(req_to_token=self.table),
            spec_info=SimpleNamespace(),
        )

    def plain_round(self) -> SimpleNamespace:
        """Each request gains the token 7·position; its state is [row, position] in every column."""
        batch = self.batch()
        states = torch.tensor([[float(row), float(length)] * 3 for row, length in self.requests.values()])
        tokens = torch.tensor([7 * length for _, length in self.requests.values()], dtype=torch.int32)
        output = SimpleNamespace(hidden_states=states)
        result = SimpleNamespace(logits_output=output, next_token_ids=tokens, next_draft_input=SimpleNamespace())
        self.deferred.hold(batch, result)
        for request in self.requests.values():
            request[1] += 1
        return result.next_draft_input

    def _forward(self, part: SimpleNamespace) -> SimpleNamespace:
        self.reads.append(part)
        requests = len(part.reqs)
        logits = torch.eye(requests, 5)  # request i proposes token i
        return SimpleNamespace(
            logits_output=SimpleNamespace(next_token_logits=logits, hidden_states=torch.ones(requests, H))
        )


def check(part: SimpleNamespace) -> None:
    """Every row that is read belongs to its position, and every position from the first unread one on is read."""
    positions = [range(s, s + n) for s, n in zip(part.prefix_lens, part.extend_lens, strict=True)]
    rows = [(int(r), p) for r, ps in zip(part.req_pool_indices, positions, strict=True) for p in ps]
    assert part.extend_num_tokens == len(rows)
    assert part.out_cache_loc.tolist() == [1000 * row + position for row, position in rows]
    assert part.input_ids.tolist() == [7 * position for _, position in rows]
    assert part.spec_info.hidden_states[:, :2].tolist() == [[row, position] for row, position in rows]
    assert part.seq_lens.tolist() == [positions_.stop for positions_ in positions]


def test_before_proposing_the_draft_reads_what_it_has_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    draft.add("a", 0, 10)
    draft.plain_round()
    draft.add("b", 2, 50)
    for _ in range(3):
        draft.plain_round()
    batch = draft.batch()
    assert draft.deferred.catch_up(batch)
    (part,) = draft.reads
    check(part)
    assert part.extend_lens == [4, 3]
    assert batch.spec_info.topk_index.tolist() == [[0], [1]]
    assert not draft.deferred.catch_up(draft.batch())


def test_no_request_holds_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    draft.add("a", 1, 5)
    inputs = [draft.plain_round() for _ in range(2 * MOST_HELD)]
    assert [part.extend_lens for part in draft.reads] == [[MOST_HELD]] * 2
    for part in draft.reads:
        check(part)
    assert draft.reads[1].prefix_lens == [5 + MOST_HELD]
    assert inputs[MOST_HELD - 1].topk_index.tolist() == [[0]]
    assert not draft.deferred.catch_up(draft.batch())


def test_a_request_that_has_just_come_makes_the_batch_uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    draft.add("a", 0, 10)
    assert not draft.deferred.uneven(draft.batch().reqs)
    draft.plain_round()
    assert not draft.deferred.uneven(draft.batch().reqs)
    draft.add("b", 1, 20)
    assert draft.deferred.uneven(draft.batch().reqs)
    draft.plain_round()
    assert not draft.deferred.uneven(draft.batch().reqs)


def test_what_is_prefilled_again_and_what_has_ended_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    draft.add("a", 0, 10)
    draft.add("b", 1, 20)
    draft.plain_round()
    draft.add("a", 3, 11)  # retracted and back, elsewhere in the cache
    del draft.requests["b"]
    draft.plain_round()
    assert draft.deferred.catch_up(draft.batch())
    (part,) = draft.reads
    check(part)
    assert part.prefix_lens == [11]
