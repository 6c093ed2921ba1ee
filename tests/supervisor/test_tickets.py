"""Orders from other threads, and the loop that answers them."""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tide_cli.errors import TideError
from tide_cli.supervisor.messages import Message, TrainAsked
from tide_cli.supervisor.tickets import Tickets


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def asked(pool: ThreadPoolExecutor, tickets: Tickets, sent: queue.SimpleQueue[Message]) -> tuple[int, Future[str]]:
    """(ticket, the words to come) of an order whose message has reached the loop."""
    words = pool.submit(tickets.ask, TrainAsked, "no cycle")
    return sent.get(timeout=10).ticket, words


def test_each_gets_the_answer_to_its_own_ticket(pool: ThreadPoolExecutor) -> None:
    sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
    tickets = Tickets(sent.put)
    (first, begun), (second, refused) = (asked(pool, tickets, sent) for _ in range(2))
    tickets.answer(second, False, "one runs already")
    tickets.answer(first, True, "begun")
    assert begun.result(timeout=10) == "begun"
    with pytest.raises(TideError) as caught:
        refused.result(timeout=10)
    assert caught.value.lines() == ["no cycle: one runs already"]


def test_at_the_end_nobody_waits(pool: ThreadPoolExecutor) -> None:
    sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
    tickets = Tickets(sent.put)
    _, waiting = asked(pool, tickets, sent)
    tickets.close()
    late = pool.submit(tickets.ask, TrainAsked, "no cycle")
    for answer in (waiting, late):
        with pytest.raises(TideError) as caught:
            answer.result(timeout=10)
        assert caught.value.lines() == ["no cycle: the appliance is ending"]
    assert sent.empty()
