"""Orders that wait for an answer: any thread hands one in with a ticket, the loop answers by the ticket's number."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future

from tide_cli.errors import TideError
from tide_cli.supervisor.messages import Message

_ANSWER_WITHIN = 120.0  # seconds the holder of a ticket waits
_ENDING = "the appliance is ending"


class Tickets:
    """put: hands a message to the loop, from any thread."""

    def __init__(self, put: Callable[[Message], None]) -> None:
        self._put = put
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[tuple[bool, str]]] = {}
        self._closed = False

    def ask(self, order: Callable[[int], Message], refused: str) -> str:
        """The words of the answer. order: the message with this ticket. Raises TideError, beginning with `refused`."""
        ticket = next(self._numbers)
        answer = self._waiting[ticket] = Future()
        if self._closed:  # asked only now: `close` may have missed the entry, or answered it
            raise TideError(refused, why=_ENDING)
        self._put(order(ticket))
        try:
            done, words = answer.result(timeout=_ANSWER_WITHIN)
        except TimeoutError:
            raise TideError(refused, why=f"no answer within {_ANSWER_WITHIN:.0f} s") from None
        if not done:
            raise TideError(refused, why=words)
        return words

    def answer(self, ticket: int, done: bool, words: str) -> None:
        """For the loop."""
        self._waiting.pop(ticket).set_result((done, words))

    def close(self) -> None:
        """The loop answers nothing any more: neither what waits now nor what comes."""
        self._closed = True
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_result((False, _ENDING))
