"""Capture from forwards to samples, with a real spool behind it and made-up forwards before it."""

from __future__ import annotations

import queue
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from tide_cli.engine.plugin import capture
from tide_cli.engine.plugin.capture import Capture
from tide_cli.engine.plugin.captured import is_chosen
from tide_cli.engine.plugin.staging import CudaStaging, Staging
from tide_cli.errors import TideError
from tide_cli.spool import writer as writer_module
from tide_cli.spool.erase import Which, ask, erase_offline, wait_for_answer
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.writer import SpoolWriter

H = 8


class Scheduler:
    """Feeds forwards to a Capture the way the plugin's hooks do, and writes when told to."""

    def __init__(self, folder: Path, max_in_flight: int = 100, sample_rate: float = 1.0, **options: Any) -> None:
        self.folder = folder
        self.ids: dict[str, list[int]] = {}  # prompts that are not 0, 1, 2, …
        self.writer = SpoolWriter.open(
            folder,
            RowLayout(hidden_size=H, target="t"),
            2**20,
            run="r",
            max_sample_tokens=64,
            held_out_share=0.5,
            **options,
        )
        self.capture = Capture(self.writer, Staging(), max_in_flight, folder=folder, sample_rate=sample_rate)

    def prefill(self, rids: list[str], starts: list[int], counts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        batch = SimpleNamespace(
            forward_mode=ForwardMode.EXTEND,
            is_extend_in_batch=True,
            reqs=[self._req(rid, start + count) for rid, start, count in zip(rids, starts, counts, strict=True)],
            prefix_lens=starts,
            extend_lens=counts,
        )
        return self._forward(batch, sum(counts), None)

    def _req(self, rid: str, end: int) -> SimpleNamespace:
        ids = array("q", self.ids.get(rid, range(end))[:end])
        return SimpleNamespace(rid=rid, get_fill_ids=lambda: ids)

    def verify(self, rids: list[str], seq_lens: list[int], accept: list[int], width: int = 4):
        batch = SimpleNamespace(
            forward_mode=ForwardMode.DECODE,
            is_extend_in_batch=False,
            reqs=[SimpleNamespace(rid=rid) for rid in rids],
            seq_lens=torch.tensor(seq_lens),
        )
        return self._forward(batch, width * len(rids), torch.tensor(accept))

    def _forward(self, batch, rows: int, accept):
        aux, final = torch.randn(rows, 3 * H).bfloat16(), torch.randn(rows, H).bfloat16()
        before = self.capture.before_forward(batch)
        logits = SimpleNamespace(hidden_states=aux, last_hidden_states=final)
        self.capture.after_forward(before, SimpleNamespace(logits_output=logits, accept_lens=accept))
        return aux, final

    def finish(self, rid: str, prompt: list[int], output: list[int], aborted: bool = False, most: int = 9) -> None:
        reason = FINISH_ABORT() if aborted else FINISH_LENGTH(len(output))
        req = SimpleNamespace(
            rid=rid,
            finished=lambda: True,
            finished_reason=reason,
            origin_input_ids=prompt,
            output_ids_through_stop=output,
            sampling_params=SimpleNamespace(max_new_tokens=most),
            spec_verify_ct=2,
            spec_num_correct_drafts=1,
            routing_key="shop" if rid == "a" else None,
            tide_draft=5,
        )
        self.capture.after_result([req])

    def write(self) -> list:
        """Let the capture thread's work be done, here."""
        while not self.capture._queue.empty():
            self.capture._write_next()
        reader = SpoolReader.open(self.folder)
        return [reader.read(info) for info in sorted(reader.samples(), key=lambda info: info.id)]


@pytest.fixture
def scheduler(tmp_path: Path):
    made = Scheduler(tmp_path / "spool")
    yield made
    made.writer.close()


def test_a_request_for_no_output_is_no_loss(scheduler: Scheduler) -> None:
    """SGLang computes the prompt of several answers (`n`) in a request of its own."""
    free = scheduler.writer.fill
    for rid in ("shared", "lost"):
        if rid == "lost":
            scheduler.capture._lost_rows[rid] = "queue_full"
        else:
            scheduler.prefill([rid], [0], [5])
        scheduler.finish(rid, [0, 1, 2, 3, 4], [], most=0)
    assert scheduler.write() == []
    assert scheduler.capture.counters() == {"samples": 0, "tokens": 0}
    assert scheduler.writer.fill == free


def test_prefill_and_verify_become_one_sample(scheduler: Scheduler) -> None:
    scheduler.ids["other"] = [7, 7, 7]
    aux1, final1 = scheduler.prefill(["other", "a"], [0, 2], [3, 4])
    aux2, final2 = scheduler.verify(["a"], [6], [3])
    scheduler.finish("a", list(range(6)), [90, 91, 92, 93])
    (sample,) = scheduler.write()
    # positions 2…5 by the prefill, 6…8 by verify; the last token of all has no row
    assert sample.info.prefix_missing == 2
    assert sample.tokens.tolist() == [2, 3, 4, 5, 90, 91, 92]
    assert sample.loss_mask.tolist() == [False] * 4 + [True] * 3
    assert torch.equal(sample.aux, torch.cat((aux1[3:], aux2[:3])))
    assert torch.equal(sample.final, torch.cat((final1[3:], final2[:3])))
    assert (sample.info.draft_version, sample.info.verify_steps, sample.info.accepted) == (5, 2, 1)
    assert sample.info.domain == "shop"


def test_rows_beyond_the_stop_are_left_out(scheduler: Scheduler) -> None:
    scheduler.prefill(["a"], [0], [3])
    scheduler.verify(["a"], [3], [4])
    scheduler.finish("a", [1, 2, 3], [7, 8])  # the stop came in the middle of the accepted tokens
    (sample,) = scheduler.write()
    assert sample.tokens.tolist() == [1, 2, 3, 7, 8]


def test_an_aborted_request_is_no_sample_and_gives_its_pages_back(scheduler: Scheduler) -> None:
    scheduler.prefill(["a"], [0], [20])
    scheduler.finish("a", list(range(20)), [], aborted=True)
    assert scheduler.write() == []
    assert scheduler.capture.counters()["dropped_aborted"] == 1


@pytest.mark.parametrize("rid", ["tide-probe", "HEALTH_CHECK_1"])
def test_own_requests_are_not_captured(scheduler: Scheduler, rid: str) -> None:
    scheduler.prefill([rid, "a"], [0, 0], [3, 3])
    scheduler.verify([rid, "a"], [3, 3], [2, 2])
    scheduler.finish(rid, [1, 2, 3], [4, 5, 6])
    scheduler.finish("a", [1, 2, 3], [4, 5, 6])
    assert [sample.tokens.tolist() for sample in scheduler.write()] == [[1, 2, 3, 4, 5]]


def test_a_full_queue_drops_the_request_and_counts_it(scheduler: Scheduler) -> None:
    scheduler.capture._queue = queue.Queue(2)
    scheduler.prefill(["a", "b"], [0, 0], [3, 3])
    scheduler.prefill(["c"], [0], [3])
    scheduler.verify(["a", "b"], [3, 3], [1, 1])  # lost
    assert scheduler.write() == []
    scheduler.verify(["a", "c"], [4, 3], [1, 2])
    scheduler.finish("c", [1, 2, 3], [4, 5, 6])
    assert [sample.tokens.tolist() for sample in scheduler.write()] == [[1, 2, 3, 4, 5]]
    scheduler.finish("a", [1, 2, 3], [4, 5, 6])
    scheduler.finish("b", [1, 2, 3], [4, 5, 6])
    assert len(scheduler.write()) == 1
    assert scheduler.capture.counters()["dropped_queue_full"] == 2


def test_what_waits_is_bounded_in_bytes_too(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_QUEUED_BYTES", 5 * 8 * H)  # five rows
    scheduler.prefill(["long"], [0], [9])  # alone, and so let through
    scheduler.prefill(["lost"], [0], [1])
    assert scheduler.write() == []
    scheduler.prefill(["a"], [0], [1])
    scheduler.verify(["long"], [9], [2])
    for rid, prompt in (("long", 9), ("lost", 1), ("a", 1)):
        scheduler.finish(rid, list(range(prompt)), [50, 51])
    assert [sample.tokens.tolist() for sample in scheduler.write()] == [[*range(9), 50, 51]]
    assert scheduler.capture.counters()["dropped_queue_full"] == 1


def test_pinned_memory_is_counted_as_it_is_allocated(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a prefill of 8192 tokens at H = 2880: 135 MiB of aux take 256, 45 of final take 64."""
    aux, final = (torch.empty(8192, columns * 2880, dtype=torch.bfloat16, device="meta") for columns in (3, 1))
    assert CudaStaging.host_bytes(aux, final) == (256 + 64) * 2**20
    assert Staging.host_bytes(aux, final) == 8192 * 8 * 2880
    assert CudaStaging.host_bytes(aux[:0], final[:1, :1024], final[:1, :1025]) == 2048 + 4096

    monkeypatch.setattr(scheduler.capture._staging, "host_bytes", CudaStaging.host_bytes)
    monkeypatch.setattr(capture, "_QUEUED_BYTES", 5 * 8 * H)
    scheduler.prefill(["a"], [0], [3])  # 144 + 48 bytes, which take 256 + 64: all that may wait
    scheduler.prefill(["b"], [0], [1])
    scheduler.write()
    scheduler.verify(["a"], [3], [2])
    for rid, prompt in (("a", 3), ("b", 1)):
        scheduler.finish(rid, list(range(prompt)), [50, 51])
    assert [sample.tokens.tolist() for sample in scheduler.write()] == [[0, 1, 2, 50, 51]]
    assert scheduler.capture.counters()["dropped_queue_full"] == 1


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("cudaHostAlloc failed")])
def test_a_forward_without_memory_for_its_copy_is_lost_and_serving_goes_on(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def no_memory(**_: object) -> None:
        raise error

    scheduler.prefill(["a", "b"], [0, 0], [3, 3])
    with monkeypatch.context() as patch:
        patch.setattr(scheduler.capture._staging, "copy", no_memory)
        scheduler.verify(["a", "tide-probe"], [3, 3], [2, 2])
        scheduler.verify(["a"], [5], [2])
    scheduler.verify(["a", "b"], [7, 3], [1, 2])
    for rid in "ab":
        scheduler.finish(rid, [1, 2, 3], [4, 5, 6])
    assert len(scheduler.write()) == 1
    assert scheduler.capture.counters() == {"samples": 1, "tokens": 5, "dropped_no_memory": 1}
    assert not scheduler.capture._lost_rows


def test_a_lost_end_gives_the_pages_back(scheduler: Scheduler) -> None:
    scheduler.capture._queue = queue.Queue(1)
    scheduler.prefill(["a"], [0], [3])
    scheduler.finish("a", [1, 2, 3], [4, 5])  # lost
    scheduler.write()
    scheduler.prefill(["b"], [0], [3])
    scheduler.write()
    assert scheduler.capture.counters()["dropped_queue_full"] == 1


def test_a_request_that_ended_unseen_is_forgotten(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "spool", max_in_flight=2)
    for rid in ("gone", "b", "c"):
        scheduler.prefill([rid], [0], [3])
    scheduler.verify(["b", "c"], [3, 3], [2, 2])
    scheduler.finish("b", [1, 2, 3], [4, 5, 6])
    scheduler.finish("c", [1, 2, 3], [4, 5, 6])
    assert len(scheduler.write()) == 2
    assert scheduler.capture.counters()["dropped_aborted"] == 1
    scheduler.writer.close()


def test_a_failure_ends_capture_and_says_so(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(scheduler.writer, "put_forward", broken)
    scheduler.prefill(["a"], [0], [3])
    scheduler.capture._write_forever()
    assert "disk gone" in scheduler.capture.counters()["failure"]
    assert scheduler.capture.before_forward(SimpleNamespace(forward_mode=ForwardMode.EXTEND)) is None
    for _ in range(1000):  # and what goes on leaves nothing behind
        scheduler.finish("a", [1, 2, 3], [4, 5])
    assert scheduler.capture._queue.empty()
    assert not scheduler.capture._lost_ends
    scheduler.capture.erase(1)
    with pytest.raises(TideError, match="could not erase") as caught:
        wait_for_answer(scheduler.folder, 1, timeout=0)
    assert caught.value.why == "capture has stopped"
    erase_offline(scheduler.folder, Which(everything=True))  # others can take the spool


def test_a_cached_prefix_comes_from_the_pages_of_a_running_request(scheduler: Scheduler) -> None:
    scheduler.ids = {"a": [*range(40), 1], "b": [*range(40), 2, 3], "c": [*range(25), 4]}
    aux, final = scheduler.prefill(["a"], [0], [41])
    scheduler.prefill(["b", "c"], [40, 25], [2, 1])
    scheduler.verify(["a", "b", "c"], [41, 42, 26], [1, 1, 1])
    for rid, prompt in scheduler.ids.items():
        scheduler.finish(rid, prompt, [50, 51])
    samples = scheduler.write()
    assert [sample.tokens.tolist() for sample in samples] == [[*ids, 50] for ids in scheduler.ids.values()]
    assert [sample.info.reused for sample in samples] == [0, 40, 25]
    for sample in samples[1:]:
        cached = sample.info.reused
        assert torch.equal(sample.aux[:cached], aux[:cached])
        assert torch.equal(sample.final[:cached], final[:cached])
    pages = [page for sample in samples for page in sample.info.pages]
    assert (len(pages), len(set(pages))) == (8, 5)
    assert scheduler.capture.counters()["tokens"] == 42 + 3 + 2


def test_leavings_are_looked_for_in_traffic_without_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(writer_module, "_SWEEP_EVERY", 0.0)
    scheduler = Scheduler(tmp_path / "spool", retention_seconds=3600.0)
    scheduler.prefill(["gone"], [0], [20])
    scheduler.finish("gone", list(range(20)), [], aborted=True)
    scheduler.prefill(["a"], [0], [1])
    for _ in range(3):
        assert not scheduler.capture._queue.empty()  # there is always something to write
        scheduler.capture._write_next()
    assert np.flatnonzero(scheduler.writer._ring.checks).size == 1
    scheduler.writer.close()


def test_a_share_of_the_requests_is_stored_whole(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "spool", sample_rate=0.5)
    rids = [f"request-{number}" for number in range(40)]
    scheduler.ids = {rid: [number, 1, 2] for number, rid in enumerate(rids)}
    for rid in rids:
        scheduler.prefill([rid], [0], [3])
        scheduler.verify([rid], [3], [2])
        scheduler.finish(rid, scheduler.ids[rid], [4, 5, 6])
    stored = [sample.tokens[0].item() for sample in scheduler.write()]
    assert stored == [number for number, rid in enumerate(rids) if is_chosen(rid, 0.5)]
    assert 8 < len(stored) < 32
    counters = scheduler.capture.counters()
    assert counters == {"samples": len(stored), "tokens": 5 * len(stored), "skipped": 40 - len(stored)}
    assert scheduler.capture.before_forward(batch_of(rids[stored[0]])) is not None
    skipped = next(rid for rid in rids if not is_chosen(rid, 0.5))
    assert scheduler.capture.before_forward(batch_of(skipped)) is None
    scheduler.writer.close()


def batch_of(rid: str) -> SimpleNamespace:
    reqs = [SimpleNamespace(rid=rid)]
    return SimpleNamespace(
        forward_mode=ForwardMode.DECODE, is_extend_in_batch=False, reqs=reqs, seq_lens=torch.tensor([3])
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all(share: float) -> None:
    assert {is_chosen(f"r{number}", share) for number in range(100)} == {bool(share)}


def test_erasing_is_asked_for_by_number_and_answered(scheduler: Scheduler) -> None:
    scheduler.ids = {"a": [1, 1, 1], "b": [2, 2, 2]}
    for rid in "ab":
        scheduler.prefill([rid], [0], [3])
        scheduler.verify([rid], [3], [2])
        scheduler.finish(rid, scheduler.ids[rid], [4, 5, 6])
    scheduler.write()
    number = ask(scheduler.folder, Which(ids=(1, 77)))
    scheduler.capture.erase(number)
    assert [sample.info.id for sample in scheduler.write()] == [2]
    while scheduler.capture._wiping or scheduler.capture._erasing:
        scheduler.capture._write_next()
    done = wait_for_answer(scheduler.folder, number, timeout=0)
    assert (done.samples, done.pages, done.kept_shared) == (1, 1, 0)
    assert not list(scheduler.folder.glob("erase*"))
    scheduler.capture.erase(5)  # nobody has left such a request
    scheduler.capture._write_next()
    with pytest.raises(TideError, match="could not erase"):
        wait_for_answer(scheduler.folder, 5, timeout=0)
    scheduler.capture._queue = queue.Queue(1)
    for number in (6, 7):
        scheduler.capture.erase(number)
    with pytest.raises(TideError, match="could not erase") as caught:
        wait_for_answer(scheduler.folder, 7, timeout=0)
    assert "full" in caught.value.why
    assert scheduler.capture.counters().get("failure") is None
