"""What the draft reads later: which rows of which request, at which positions. Its forward is written down, not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from tide_cli.engine.plugin import deferral
from tide_cli.engine.plugin.deferral import MOST_HELD, DeferredExtend

H = 2


class CacheWritten(Exception):
    """As of the attention backend: the forward has no result."""


class Draft:
    """A worker whose draft notes what it is given to read, and a batch of requests in plain rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[SimpleNamespace] = []
        monkeypatch.setattr(deferral.ForwardBatch, "init_new", lambda part, runner, **options: part)
        self.only_cache = False
        backend = SimpleNamespace(only_cache=self._only_cache)
        config = SimpleNamespace(num_hidden_layers=1)
        runner = SimpleNamespace(forward=self._forward, attn_backend=backend, model_config=config)
        self.worker = SimpleNamespace(
            draft_worker=SimpleNamespace(draft_runner=runner), _stub_skipped_draft_extend=lambda batch, result: None
        )
        self.deferred = DeferredExtend(self.worker)
        self.table = torch.arange(4 * 1000).view(4, 1000)  # the slot of request r's position p is 1000 r + p
        self.requests: dict[str, list[int]] = {}  # rid: [row of the table, length]

    def add(self, rid: str, row: int, length: int) -> None:
        self.requests[rid] = [row, length]
        self.deferred.forget([SimpleNamespace(rid=rid)])

    def prefill(self, rid: str, row: int, length: int, computed: bool) -> object:
        """A prompt that is read whole at 0 steps; computed: by a draft that cannot stop at its cache."""
        self.add(rid, row, length)
        batch = SimpleNamespace(reqs=[SimpleNamespace(rid=rid)], extend_lens=[length])
        states = torch.tensor([[float(row), float(position)] * 3 for position in range(length)])

        def extend() -> str:
            if self.only_cache and not computed:
                raise CacheWritten
            return "proposals"

        return self.deferred.prefill(extend, batch, states, torch.tensor([7 * (length - 1)]))

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

    @contextmanager
    def _only_cache(self, last_layer: int) -> Iterator[None]:
        assert last_layer == 0
        self.only_cache = True
        try:
            yield
        except CacheWritten:
            pass
        finally:
            self.only_cache = False

    def _forward(self, part: SimpleNamespace) -> SimpleNamespace:
        self.reads.append(part)
        if self.only_cache:
            raise CacheWritten
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
    part, newest = draft.reads
    check(part)
    check(newest)
    assert part.extend_lens == [4, 3]
    assert newest.extend_lens == [1, 1]
    assert batch.spec_info.topk_index.tolist() == [[0], [1]]
    assert not draft.deferred.catch_up(draft.batch())


def test_no_request_holds_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest token stays held, for it is what the draft proposes from."""
    draft = Draft(monkeypatch)
    draft.add("a", 1, 5)
    for _ in range(2 * MOST_HELD + 1):
        draft.plain_round()
    assert [part.extend_lens for part in draft.reads] == [[MOST_HELD + 1]] * 2
    for part in draft.reads:
        check(part)
    assert [part.prefix_lens for part in draft.reads] == [[5], [5 + MOST_HELD]]
    batch = draft.batch()
    assert draft.deferred.catch_up(batch)
    check(draft.reads[2])
    assert draft.reads[2].extend_lens == [1]
    assert batch.spec_info.topk_index.tolist() == [[0]]
    assert not draft.deferred.catch_up(draft.batch())


def test_a_prompt_is_read_but_for_its_newest_token(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    draft.add("a", 0, 10)
    draft.plain_round()
    assert draft.prefill("b", 2, 20, computed=False) is not None
    assert not draft.deferred.uneven(draft.batch().reqs)
    draft.plain_round()
    assert draft.deferred.catch_up(draft.batch())
    part, newest = draft.reads
    check(part)
    check(newest)
    assert part.prefix_lens == [10, 19]
    assert part.extend_lens == [2, 2]


def test_the_proposals_of_a_draft_that_cannot_stop_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft(monkeypatch)
    assert draft.prefill("a", 1, 20, computed=True) == "proposals"
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
