"""Requests with a cached prefix get its rows from the pages of those that computed them. Pages have 4 tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from spool_traffic import is_of, prefix_rows

from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.recovery import scan
from tide_cli.spool.writer import SpoolWriter
from tide_cli.telemetry.totals import served_requests

SYSTEM = [9, 8, 7, 6, 5, 4, 3, 2, 1, 2]


@pytest.fixture
def talk() -> Callable[..., int | None]:
    """One request: the rows of positions from `cached` on, all tokens known at its prefill, the last 3 generated."""

    def talk_(writer: SpoolWriter, text: list[int], cached: int = 0, rid: str = "r") -> int | None:
        put(writer, rid, text, cached)
        return end(writer, rid, text)

    return talk_


def put(writer: SpoolWriter, rid: str, text: list[int], start: int, stop: int | None = None) -> None:
    aux, final = prefix_rows(text)
    writer.put_rows(rid, start, aux[start:stop], final[start:stop], text[:stop])


def end(writer: SpoolWriter, rid: str, text: list[int]) -> int | None:
    return writer.finish(rid, [*text, 1], len(text) - 3, draft_version=0, verify_steps=1, accepted_tokens=0)


def stored(reader: SpoolReader) -> list[tuple]:
    return [(info.prefix_missing, info.tokens, info.reused, info.pages) for info in reader.samples()[::-1]]


def test_turns_of_a_conversation_share_their_pages(open_writer, open_reader, talk, folder):
    writer, text, texts = open_writer(pages=40, max_sample_tokens=64), list(SYSTEM), []
    for turn in range(5):  # each turn: 2 tokens of the user's, 3 generated; all before it is cached
        cached = len(text) if turn else 0
        text = [*text, 11 + turn, 12, 13, 14, 15]
        talk(writer, text, cached)
        texts.append(text)
    reader = open_reader()
    infos = reader.samples()[::-1]
    assert [is_of(reader.read(info), text) for info, text in zip(infos, texts, strict=True)] == [True] * 5
    assert {info.prefix_missing for info in infos} == {0}
    assert [info.reused for info in infos] == [0, 15, 20, 25, 30]
    pages = [page for info in infos for page in info.pages]
    # a page that was cut in the middle is copied; only whole ones are shared
    assert (len(pages), len(set(pages))) == (33, 12)
    assert reader.totals() == {"samples": 5, "tokens": 15 + 4 * 5, "reused_tokens": 15 + 20 + 25 + 30}
    assert writer._pages.free == 40 - 12
    # the figures of each count, however much of its prompt was cached: what drafts are judged by
    seen = served_requests(folder, after=1)
    assert [(one.id, one.version, one.tokens, one.steps) for one in seen] == [(n, 0, 1, 1) for n in range(2, 6)]


@pytest.mark.parametrize("cached", range(1, 12))
def test_every_length_of_a_cached_prefix(open_writer, open_reader, talk, cached: int):
    writer = open_writer(pages=40)
    talk(writer, [*SYSTEM, 1, 2, 3])
    talk(writer, [*SYSTEM[:cached], *([0] if cached < 10 else []), 5, 5, 5, 5], min(cached, 10))
    reader = open_reader()
    first, second = reader.samples()[::-1]
    assert (second.prefix_missing, second.reused) == (0, min(cached, 10))
    assert is_of(reader.read(second), [*SYSTEM[:cached], *([0] if cached < 10 else []), 5, 5, 5, 5])
    assert second.pages[: cached // 4] == first.pages[: min(cached, 10) // 4]
    assert not set(second.pages[min(cached, 10) // 4 :]) & set(first.pages)


def test_a_running_request_lends_its_prompt_and_may_go(open_writer, open_reader):
    writer = open_writer(pages=40)
    one, two = [*SYSTEM, 1, 1, 1, 1], [*SYSTEM, 2, 2, 2, 2]
    put(writer, "one", one, 0, 11)
    put(writer, "two", two, 10)
    writer.abort("one")
    end(writer, "two", two)
    reader = open_reader()
    (info,) = reader.samples()
    assert (info.prefix_missing, info.tokens) == (0, 14)
    assert is_of(reader.read(info), two)
    assert writer._pages.free == 40 - 4


def test_both_compute_the_same_at_the_same_time(open_writer, open_reader):
    writer = open_writer(pages=40)
    for rid in ("a", "b", "c"):
        put(writer, rid, SYSTEM, 0)
    assert writer._pages.free == 40 - (2 + 3)  # two whole pages once, the third page of each
    for number, rid in enumerate("abc"):
        text = [*SYSTEM, number, 5, 5, 5]
        put(writer, rid, text, 10)
        end(writer, rid, text)
    reader = open_reader()
    assert [is_of(reader.read(info), [*SYSTEM, i, 5, 5, 5]) for i, info in enumerate(reader.samples()[::-1])] == [
        True
    ] * 3


def test_evicted_samples_leave_the_pages_that_others_share(open_writer, open_reader, talk):
    writer = open_writer(pages=12)
    talk(writer, [*SYSTEM, 1, 1, 1])
    reader = open_reader()
    (first,) = reader.samples()
    for number in range(2, 12):
        talk(writer, [*SYSTEM, number, number, number], 10)
        assert reader.samples()[0].prefix_missing == 0
    assert first.id not in [info.id for info in reader.samples()]
    assert all(info.pages[:2] == first.pages[:2] for info in reader.samples())
    assert reader.read(first) is None
    assert (reader.overwritten, reader.damaged) == (1, 0)
    before = reader.samples()
    writer.close()
    (reader.folder / "index.db").unlink()  # the table alone tells the same
    open_writer(pages=12)
    again = open_reader()
    assert again.samples() == before
    assert all(is_of(again.read(info), [*SYSTEM, *[info.id] * 3]) for info in before)


def test_what_the_ring_has_lost_is_missing_and_the_rest_is_whole(open_writer, open_reader, talk):
    writer = open_writer(pages=12)
    text = [*SYSTEM, 1, 2, 3, 4, 5, 6]
    talk(writer, text)
    for number in range(3):
        talk(writer, [100 + number] * 13)
    longer = [*text, 7, 8, 9]
    talk(writer, longer, 16)
    reader = open_reader()
    info = reader.samples()[0]
    assert (info.prefix_missing, info.tokens, info.reused, info.cut) == (16, 3, 0, 0)
    assert is_of(reader.read(info), longer)


def test_a_beginning_in_the_middle_of_a_page_is_shared_from_there(open_writer, open_reader, talk):
    writer = open_writer(pages=40)
    text = [*SYSTEM, 1, 2, 3, 4, 5, 6]
    talk(writer, text, 2)  # nobody has the first two rows
    longer = [*text, 7, 8, 9]
    talk(writer, longer, 16)
    reader = open_reader()
    newer, older = reader.samples()
    assert (newer.prefix_missing, newer.reused) == (2, 14)
    assert newer.pages[0] == older.pages[0]
    assert is_of(reader.read(newer), longer)


def test_a_cut_front_is_told_from_a_missing_one(open_writer, open_reader):
    writer = open_writer(pages=40)
    text = list(range(1, 41))
    for start in range(2, 40, 5):
        put(writer, "a", text, start, min(40, start + 5))
    end(writer, "a", text)
    reader = open_reader()
    (info,) = reader.samples()
    assert (info.prefix_missing, info.cut, info.tokens) == (16, 14, 24)
    assert is_of(reader.read(info), text)


def test_a_shared_page_is_never_rewritten(open_writer, open_reader):
    writer = open_writer(pages=40)
    one, two = [*SYSTEM, 1, 1, 1, 1], [*SYSTEM, 2, 2, 2, 2]
    put(writer, "one", one, 0, 12)
    put(writer, "two", two, 10)
    for start in (7, 3):  # retracted, twice, the second time with other tokens from there on
        put(writer, "one", one, start, 12)
    other = [*SYSTEM[:3], 5, 5, 5, 5, 5, 5, 5, 5]
    put(writer, "one", other, 3)
    end(writer, "one", other)
    end(writer, "two", two)
    reader = open_reader()
    second, first = reader.samples()
    assert is_of(reader.read(first), other)
    assert is_of(reader.read(second), two)
    assert scan(writer._ring) == [first, second]


def test_tokens_that_change_at_the_end_drop_the_sample(open_writer):
    writer = open_writer(pages=40)
    put(writer, "a", SYSTEM, 0)
    assert end(writer, "a", [1, *SYSTEM[1:]]) is None
    assert writer.counters()["dropped_tokens"] == 1
    assert writer._pages.free == 40


def test_a_new_opening_knows_no_prefix(open_writer, open_reader, talk):
    writer = open_writer(pages=40)
    talk(writer, [*SYSTEM, 1, 1, 1])
    writer.close()
    talk(open_writer(pages=40), [*SYSTEM, 2, 2, 2], 10)
    reader = open_reader()
    newer, older = reader.samples()
    assert (newer.prefix_missing, older.prefix_missing) == (10, 0)
    assert not set(newer.generations) & set(older.generations)


def test_generations_never_come_back(open_writer, talk):
    seen: set[int] = set()
    for opening in range(3):
        writer = open_writer(pages=12)
        for number in range(9):
            talk(writer, [opening * 50 + number] * 13)
            new = set(writer._pages.generations(range(12))) - {0} - seen
            assert new, "a filled page has a generation of its own"
            seen |= new
        writer._ring.table["generation"] = 0  # as if every page had been given back
        writer._ring.table["owner"] = 0
        writer.close()
