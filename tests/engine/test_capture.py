"""Capture from forwards to samples, with a real spool behind it and made-up forwards before it."""

from __future__ import annotations

import queue
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from tide_cli.engine.plugin.capture import Capture
from tide_cli.engine.plugin.staging import Staging
from tide_cli.spool.layout import RowLayout
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.writer import SpoolWriter

H = 8


class Scheduler:
    """Feeds forwards to a Capture the way the plugin's hooks do, and writes when told to."""

    def __init__(self, folder: Path, max_in_flight: int = 100) -> None:
        self.folder = folder
        self.writer = SpoolWriter.open(
            folder, RowLayout(hidden_size=H, target="t"), 2**20, run="r", max_sample_tokens=64, held_out_share=0.5
        )
        self.capture = Capture(self.writer, Staging(), max_in_flight)

    def prefill(self, rids: list[str], starts: list[int], counts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        batch = SimpleNamespace(
            forward_mode=ForwardMode.EXTEND,
            is_extend_in_batch=True,
            reqs=[SimpleNamespace(rid=rid) for rid in rids],
            prefix_lens=starts,
            extend_lens=counts,
        )
        return self._forward(batch, sum(counts), None)

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

    def finish(self, rid: str, prompt: list[int], output: list[int], aborted: bool = False) -> None:
        reason = FINISH_ABORT() if aborted else FINISH_LENGTH(len(output))
        req = SimpleNamespace(
            rid=rid,
            finished=lambda: True,
            finished_reason=reason,
            origin_input_ids=prompt,
            output_ids_through_stop=output,
            spec_verify_ct=2,
            spec_num_correct_drafts=1,
        )
        self.capture.after_result([req], draft_version=5)

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


def test_prefill_and_verify_become_one_sample(scheduler: Scheduler) -> None:
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

    monkeypatch.setattr(scheduler.writer, "put_rows", broken)
    scheduler.prefill(["a"], [0], [3])
    scheduler.capture._write_forever()
    assert "disk gone" in scheduler.capture.counters()["failure"]
    assert scheduler.capture.before_forward(SimpleNamespace(forward_mode=ForwardMode.EXTEND)) is None
