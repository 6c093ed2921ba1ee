"""Traffic: so many requests at a time, one after the other, and figures of what has lately been answered."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tide_cli.demo.chat import Answer, ChatClient, acceptance_length
from tide_cli.errors import TideError
from tide_cli.workload.prompt import Prompt

_WINDOW = 60.0  # seconds that the live figures look back
_PAUSE_AFTER_FAILURE = 1.0  # seconds; the engine may be starting again


@dataclass(frozen=True)
class TrafficFigures:
    """answered and failed: requests in all; the others are of the last minute, None before the first answer."""

    answered: int
    failed: int
    last_failure: str | None
    acceptance_length: float | None
    output_tok_s: float | None


class Traffic:
    """Sends prompts from `concurrency` threads from `start` to `stop`."""

    def __init__(self, chat: ChatClient, prompts: Iterator[Prompt], concurrency: int, max_tokens: int) -> None:
        self._chat, self._prompts, self._max_tokens = chat, prompts, max_tokens
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, Answer]] = deque()  # (when it came, monotonic seconds; the answer)
        self._answered = self._failed = 0
        self._last_failure: str | None = None
        self._begun = 0.0
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(concurrency)]

    def start(self) -> None:
        self._begun = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more. What is under way is still answered."""
        self._stopped.set()

    def drain(self) -> None:
        """Stop, and wait for those answers."""
        self.stop()
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()

    def figures(self) -> TrafficFigures:
        now = time.monotonic()
        with self._lock:
            while self._recent and self._recent[0][0] < now - _WINDOW:
                self._recent.popleft()
            answers = [answer for _, answer in self._recent]
            answered, failed, last_failure = self._answered, self._failed, self._last_failure
        span = min(_WINDOW, now - self._begun)
        rate = sum(answer.tokens for answer in answers) / span if answers else None
        return TrafficFigures(answered, failed, last_failure, acceptance_length(answers), rate)

    def _send(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                prompt = next(self._prompts)
            try:
                answer = self._chat.ask(prompt, self._max_tokens, captured=True)
            except TideError as error:
                with self._lock:
                    self._failed += 1
                    self._last_failure = error.lines()[0]
                self._stopped.wait(_PAUSE_AFTER_FAILURE)
                continue
            with self._lock:
                self._answered += 1
                self._recent.append((time.monotonic(), answer))
