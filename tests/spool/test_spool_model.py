"""Random traffic with common prefixes against a model: the tokens of each request."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from spool_traffic import LAYOUT, LONGEST, common_length, is_of, prefix_rows

from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.recovery import scan
from tide_cli.spool.samples import SampleInfo
from tide_cli.spool.writer import SpoolWriter

PAGES = 14
names = st.sampled_from("abcd")
endings = st.lists(st.integers(1, 2), min_size=1, max_size=9)
systems = st.sampled_from([(), (7, 7, 7), (8,) * 8, (9, 8, 7, 6, 5, 4, 3, 2, 1)])


class Traffic(RuleBasedStateMachine):
    """Requests a … d in any order. A row follows from the tokens up to its own, so the model needs tokens only."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.running: dict[str, tuple[int, list[int], int]] = {}  # first position, prompt and output so far, prompt
        self.texts: list[list[int]] = []  # everything that was ever computed: what a prefix cache may hold
        self.expected: dict[int, tuple[list[int], int]] = {}  # text with rows, first position when it began
        self.reader: SpoolReader | None = None
        self.reopen()

    def reopen(self) -> None:
        if self.reader:
            self.reader.close()
        self.writer = SpoolWriter.open(
            self.root, LAYOUT, LAYOUT.size_for(PAGES), run="run", max_sample_tokens=LONGEST, held_out_share=0.5
        )
        self.reader = SpoolReader.open(self.root)
        self.running.clear()
        self.texts.clear()  # the engine begins with an empty cache
        self.before = frozenset(self.expected)
        self.whole = True  # no page was lost by other means than the end of its last sample

    def put(self, name: str, start: int, stop: int, *, prefill: bool) -> None:
        first, text, prompt = self.running.get(name, (start, [], 0))
        aux, final = prefix_rows(text[:stop])
        before = self.writer.counters().get("dropped_ring_full", 0)
        self.writer.put_rows(name, start, aux[start:], final[start:], text[:stop] if prefill else None)
        if self.writer.counters().get("dropped_ring_full", 0) > before:
            self.running.pop(name, None)
            self.writer.abort(name)
            self.whole = False
        else:
            self.running[name] = (min(first, start), text, prompt)
            self.whole &= not self.writer._running[name].cut

    @rule(name=names, system=systems, turn=st.none() | st.integers(0, 50), ending=endings, data=st.data())
    def prefill(self, name: str, system: tuple, turn: int | None, ending: list[int], data: st.DataObject) -> None:
        if name in self.running:
            return
        known = self.texts[turn % len(self.texts)] if turn is not None and self.texts else system
        prompt = [*known, *ending]
        hit = max((common_length(prompt, text) for text in self.texts), default=0)
        hit = data.draw(st.integers(0, min(hit, len(prompt) - 1)) if data.draw(st.booleans()) else st.just(hit))
        hit = min(hit, len(prompt) - 1)
        served = self.whole and any(common_length(prompt, text) >= hit for text in self.stored_here())
        self.running[name] = (hit, prompt, len(prompt))
        middle = data.draw(st.integers(hit + 1, len(prompt)))
        self.put(name, hit, middle, prefill=True)
        if served and name in self.running and self.whole:
            assert self.writer._running[name].first == 0
        if middle < len(prompt) and name in self.running:
            self.put(name, middle, len(prompt), prefill=True)
        self.texts.append(prompt)

    def stored_here(self) -> list[list[int]]:
        """Texts whose rows are all in the ring, of samples that this writer has stored."""
        gone = {*self.writer._finished.gone, *self.before}
        whole = [info.id for info in self.reader.samples() if info.id not in gone and not info.prefix_missing]
        return [self.expected[sample][0] for sample in whole]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def decode(self, data: st.DataObject, tokens: list[int]) -> None:
        self.write(data.draw(st.sampled_from(sorted(self.running))), tokens)

    def write(self, name: str, tokens: list[int]) -> None:
        if name in self.running:  # and not refused
            first, text, prompt = self.running[name]
            self.running[name] = (first, text + tokens, prompt)
            self.put(name, len(text), len(text) + len(tokens), prefill=False)

    @rule(name=names, system=systems, turn=st.none() | st.integers(0, 50), ending=endings, data=st.data())
    def whole_request(self, name: str, system: tuple, turn: int | None, ending: list[int], data: st.DataObject) -> None:
        if name not in self.running:
            self.prefill(name, system, turn, ending, data)
            self.write(name, [3, 1, 2][: data.draw(st.integers(1, 3))])
            self.end(name, 0)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        """The request gives its cache up, and is computed again from what is left of it; its output so far stays."""
        name = data.draw(st.sampled_from(sorted(self.running)))
        _, text, _ = self.running[name]
        self.put(name, data.draw(st.integers(0, len(text) - 1)), len(text), prefill=True)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cut=st.integers(-2, 3))
    def finish(self, data: st.DataObject, cut: int) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.running))), cut)

    def end(self, name: str, cut: int) -> None:
        if name not in self.running:
            return
        first, text, prompt = self.running.pop(name)
        request = self.writer._running[name]
        tokens = [*text, 5, 5][: len(text) - cut]
        end = min(len(tokens), len(text))
        before = self.writer.counters()
        sample = self.writer.finish(name, tokens, prompt, draft_version=1, verify_steps=2, accepted_tokens=3)
        self.texts.append(text)
        if sample is None:
            if before.get("dropped_ring_full", 0) == self.writer.counters().get("dropped_ring_full", 0):
                # only where no generated token has a row of its own, which a front cut off may bring about too
                assert end <= max(request.first, prompt, request.reused_to)
        else:
            self.expected[sample] = (text[:end], first)
            newest = self.reader.samples(newest=1)[0]
            assert newest.id == sample
            self.check(newest, must_be_there=True)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.texts.append(self.running.pop(name)[1])
        self.writer.abort(name)
        self.whole = False  # what the cache still has of it is gone here

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        gone = self.writer._finished.gone
        ids = [info.id for info in self.reader.samples() if info.id not in gone]
        chosen = data.draw(st.sets(st.sampled_from(ids)) if ids else st.just(set()))
        pages = [page for info in self.reader.samples() if info.id in chosen for page in info.pages]
        erased = self.writer.erase(lambda sample, _: sample in chosen)
        assert erased.samples == len(chosen)
        assert [info.id for info in self.reader.samples()] == [sample for sample in ids if sample not in chosen]
        free = [page for page in range(PAGES) if self.writer._pages.is_free(page)]
        assert len(set(pages) - set(free)) == erased.kept_shared
        ring, size = self.writer._ring, LAYOUT.page_tokens
        for region in (ring.tokens, ring.checks, ring.aux, ring.final):
            assert not region.reshape(PAGES, size, -1)[free].any()

    @rule(kill=st.booleans())
    def close_and_reopen(self, kill: bool) -> None:
        if kill:  # nothing is written any more, and the kernel lets the lock go
            os.close(self.writer._lock)
            self.writer._ledger._index.close()
        else:
            self.writer.close()
        self.reopen()

    @invariant()
    def no_sample_lies_and_no_page_is_lost(self) -> None:
        listed, gone = self.reader.samples(), self.writer._finished.gone  # until the next request ends
        for info in listed:
            self.check(info, must_be_there=info.id not in gone)
        infos = [info for info in listed if info.id not in gone]
        assert self.reader.damaged == 0
        assert scan(self.writer._ring) == infos[::-1]  # what a new index would say at this moment
        holders = Counter(page for info in infos for page in info.pages)
        holders.update(page for request in self.writer._running.values() for page in request.pages)
        pages = self.writer._pages
        assert [holders[page] for page in range(PAGES)] == pages._holders
        assert sorted([*pages._free, *pages._doomed, *holders]) == list(range(PAGES))

    def check(self, info: SampleInfo, *, must_be_there: bool) -> None:
        sample = self.reader.read(info)
        if sample is None:
            assert not must_be_there
            return
        text, _ = self.expected[info.id]
        assert info.prefix_missing + info.tokens == len(text)
        assert 0 < info.tokens <= LONGEST
        assert 0 <= info.cut <= info.prefix_missing
        assert is_of(sample, text)
        assert int(sample.loss_mask.sum()) == len(text) - max(info.prefix_missing, info.prompt_tokens) > 0

    def teardown(self) -> None:
        self.reader.close()
        self.writer.close()
        shutil.rmtree(self.root)


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
