"""Random traffic against a model: a dictionary of rows per request."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from spool_traffic import LAYOUT, LONGEST, bits, states

from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import SampleInfo
from tide_cli.spool.writer import SpoolWriter

PAGES = 14
names = st.sampled_from("abcd")


class Traffic(RuleBasedStateMachine):
    """Requests a … d in any order; the model keeps every row by position, the spool may only cut at the front."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.aux, self.final = states(1, 4000)
        self.used = 0  # rows of `states` handed out: no two rows written are alike
        self.running: dict[str, tuple[int, list[int]]] = {}  # first position, index into `states` of each row
        self.expected: dict[int, tuple[int, list[int], list[int], int]] = {}
        self.reader: SpoolReader | None = None
        self.reopen()

    def reopen(self) -> None:
        if self.reader:
            self.reader.close()
        self.writer = SpoolWriter.open(
            self.root,
            LAYOUT,
            LAYOUT.size_for(PAGES),
            run="run",
            max_sample_tokens=LONGEST,
            held_out_share=0.5,
        )
        self.reader = SpoolReader.open(self.root)

    def put(self, name: str, start: int, count: int) -> None:
        rows = slice(self.used, self.used + count)
        full = self.writer.counters().get("dropped_ring_full", 0)
        self.writer.put_rows(name, start, self.aux[rows], self.final[rows])
        if self.writer.counters().get("dropped_ring_full", 0) > full:
            self.running.pop(name, None)
            self.writer.abort(name)
        else:
            first, known = self.running.get(name, (start, []))
            kept = known[: max(0, start - first)]
            self.running[name] = (min(first, start), kept + list(range(rows.start, rows.stop)))
        self.used += count

    @precondition(lambda self: self.used < 3900)
    @rule(name=names, start=st.integers(0, 9), count=st.integers(1, 40))
    def prefill(self, name: str, start: int, count: int) -> None:
        if name not in self.running:
            self.put(name, start, count)

    @precondition(lambda self: self.running and self.used < 3900)
    @rule(data=st.data(), back=st.integers(0, 3), count=st.integers(1, 5))
    def decode(self, data: st.DataObject, back: int, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        first, rows = self.running[name]
        self.put(name, first + max(0, len(rows) - back), count)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cut=st.integers(-2, 3), prompt=st.integers(0, 12))
    def finish(self, data: st.DataObject, cut: int, prompt: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        first, rows = self.running.pop(name)
        tokens = list(range(self.used * 100, self.used * 100 + max(0, first + len(rows) - cut)))
        end = min(len(tokens), first + len(rows))
        sample = self.writer.finish(name, tokens, prompt, draft_version=1, verify_steps=2, accepted_tokens=3)
        if sample is None:
            # only where no generated token has a row, which a front cut off may bring about too
            assert end <= max(first + len(rows) - LONGEST + LAYOUT.page_tokens, first, prompt)
        else:
            self.expected[sample] = (first, rows, tokens, end)
            newest = self.reader.samples(newest=1)[0]
            assert newest.id == sample
            self.check(newest, must_be_there=True)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[name]
        self.writer.abort(name)

    @rule()
    def close_and_reopen(self) -> None:
        self.writer.close()
        self.running.clear()
        self.reopen()

    @invariant()
    def no_sample_lies_and_no_page_is_lost(self) -> None:
        for info in self.reader.samples():
            self.check(info, must_be_there=False)
        assert self.reader.damaged == 0
        held = sum(len(pages) for _, pages in self.writer._finished)
        held += sum(len(request.pages) for request in self.writer._running.values())
        assert held + len(self.writer._free) == PAGES

    def check(self, info: SampleInfo, *, must_be_there: bool) -> None:
        sample = self.reader.read(info)
        if sample is None:
            assert not must_be_there
            return
        first, rows, tokens, end = self.expected[info.id]
        assert first <= info.prefix_missing
        assert info.prefix_missing + info.tokens == end
        assert 0 < info.tokens <= LONGEST
        stored = rows[info.prefix_missing - first : end - first]
        assert sample.tokens.tolist() == tokens[info.prefix_missing : end]
        assert torch.equal(bits(sample.aux), bits(self.aux[stored]))
        assert torch.equal(bits(sample.final), bits(self.final[stored]))
        assert int(sample.loss_mask.sum()) == end - max(info.prefix_missing, info.prompt_tokens) > 0

    def teardown(self) -> None:
        self.reader.close()
        self.writer.close()
        shutil.rmtree(self.root)


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
