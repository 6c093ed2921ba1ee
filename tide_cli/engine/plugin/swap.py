"""Draft swap: `POST /set_internal_state {"server_args": {"tide_draft": 7}}` puts version 7 into the running engine.

The scheduler runs the handler between two steps, so no request is paused, and for as long as it takes no step begins.
`tide_prepare` therefore comes first: a thread reads the version and checks it, which takes longer than the copy; the
state says when it is `prepared`. Everything is read and validated before the first byte is written. The draft's
embedding is the target's own tensor and is never written. The vocabulary map was copied by the worker at its start; the
copy is written in place, together with the head whose rows it names, since CUDA graphs hold that very tensor. What was
proposed before a change of map and not yet verified is read with the new one: one round's proposals miss. Output stays
exact: the target verifies.

Ranks that served different drafts would propose different tokens and verify each its own: all ranks take a version, or
none does. A version is `prepared` once all ranks have it, and refused once one cannot read it. Their threads may not
wait for each other: this is found out when the schedulers are asked for their state, all of them by one request.

What a draft has cached of a prompt is of no use to another one, and live figures of the new draft would rest on the old
one's states for as long as a common system prompt stays in use. Each version therefore has a prefix cache of its own:
after a swap a prefix is computed once more. Requests that run through a swap keep what they have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tide_cli.drafts.make import make_of, other_make
from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.drafts.tensors import check_draft, check_vocabulary_map, read_draft, vocabulary_ids
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.engine.plugin.ranks import number_handler
from tide_cli.engine.plugin.side_thread import start_side_thread
from tide_cli.errors import TideError

logger = logging.getLogger(__name__)

_ELSEWHERE = "another rank of the engine, whose log says why,"


@dataclass
class _Wish:
    """To prepare `version`. Its own thread leaves here what it has read, or why it cannot, however late."""

    version: int
    tensors: dict[str, torch.Tensor] | None = None
    problem: str | None = None


class DraftSwap:
    """The served draft of one scheduler process. everywhere: tells whether something is so on all ranks."""

    def __init__(self, worker, config: EngineConfig, *, everywhere: Callable[[bool], bool] = bool) -> None:
        self.version = config.served_version
        self._everywhere = everywhere
        self._worker = worker
        self._store = DraftStore(config.drafts)
        folder = self._store.path(self.version)
        self._make = make_of(folder, read_draft(folder))
        self._wish: _Wish | None = None  # the latest one, while it is open or has come true
        self._ready: int | None = None  # the version that all ranks have prepared
        self._validated: tuple[int, dict[str, torch.Tensor]] | None = None
        self._refusal: str | None = None
        self._seconds: float | None = None

    def begin(self, req) -> None:
        """A request comes in: it is counted for the version served now, and finds and leaves that one's prefixes."""
        req.tide_draft = self.version
        # in front: SGLang looks for a LoRA adapter's id at the end
        req.extra_key = f"tide_draft={self.version}" + (f"|{req.extra_key}" if req.extra_key else "")

    def update_handlers(self) -> dict[str, object]:
        """For `POST /set_internal_state`: tide_prepare and tide_draft, each with a version."""
        from sglang.srt.managers.scheduler_components.internal_state import _UpdateHandler

        return {
            "tide_prepare": number_handler(lambda value: self._prepare(int(value))),
            "tide_draft": _UpdateHandler(self._validate, self._apply),
        }

    def state(self) -> dict[str, object]:
        """For /server_info: the served version, the one that is prepared, why the last request was refused, how long
        the last copy took. For the scheduler's thread: waits for all ranks while one of them still reads."""
        if self._wish is not None and self._ready is None:
            self._settle(self._wish)
        return {
            "draft_version": self.version,
            "prepared": self._ready,
            "refusal": self._refusal,
            "swap_seconds": self._seconds,
        }

    def _prepare(self, version: int) -> None:
        self._wish, self._ready, self._refusal = _Wish(version), None, None
        start_side_thread("tide-swap", self._read_ahead, self._wish)

    def _read_ahead(self, wish: _Wish) -> None:
        try:
            wish.tensors = self._read(wish.version)
        except Exception as error:
            logger.warning("tide: draft %s cannot be prepared: %s", wish.version, _words(error))
            wish.problem = _words(error)

    def _settle(self, wish: _Wish) -> None:
        """Close the wish where all ranks have prepared it, or one cannot."""
        if not self._everywhere(wish.problem is None):
            self._wish, self._refusal = None, wish.problem or f"{_ELSEWHERE} refused it"
        elif self._everywhere(wish.tensors is not None):
            self._ready = wish.version

    def _validate(self, key: str, value: float) -> None:
        wish, problem = self._wish, None
        self._validated = self._refusal = self._wish = self._ready = None
        try:
            version = int(value)
            prepared = wish.tensors if wish and wish.version == version else None
            self._validated = (version, prepared or self._read(version))
        except Exception as error:  # an exception that leaves a handler ends the server
            problem = _words(error)
        if not self._everywhere(problem is None):
            from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected

            self._validated, self._refusal = None, problem or f"{_ELSEWHERE} refused it"
            raise UpdateRejected(f"{key}={value} refused: {self._refusal}")

    def _read(self, version: int) -> dict[str, torch.Tensor]:
        """The tensors of `version`, checked; TideError says what is wrong with them."""
        self._store.verify(version)
        tensors = read_draft(folder := self._store.path(version))
        if why := other_make(self._make, make_of(folder, tensors)):
            remedy = f"serve it with `tide down`, `tide drafts use {version_name(version)}`, `tide up`"
            raise TideError("the running engine was built for drafts of another make", why=why, remedy=remedy)
        check_draft(tensors, self._make[1])
        if "d2t" in tensors:
            check_vocabulary_map(tensors["d2t"], tensors["t2d"])
        if torch.cuda.is_available():  # from pinned memory the copy is several times as fast
            try:
                tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
            except RuntimeError as error:
                logger.warning("tide: no pinned memory for draft %s, its swap takes longer: %s", version, error)
        return tensors

    def _apply(self, key: str, value: float) -> None:
        version, tensors = self._validated
        self._validated = problem = None
        started = time.monotonic()
        try:
            self._load(tensors)
        except Exception as error:
            logger.exception("tide: swap to %s failed; putting %s back", version_name(version), self.version)
            problem = repr(error)
        if not self._everywhere(problem is None):
            self._refusal = problem or f"{_ELSEWHERE} could not take it"
            self._load(read_draft(self._store.path(self.version)))
            return
        self.version = version
        self._seconds = time.monotonic() - started
        logger.info("tide: draft %s is served, copied in %.3f s", version_name(version), self._seconds)

    def _load(self, tensors: dict[str, torch.Tensor]) -> None:
        model = self._worker.draft_worker.draft_runner.model
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # no graph may read weights that are half replaced
        model.load_weights(tensors.items())
        if "d2t" in tensors:
            self._worker.draft_worker.hot_token_id.copy_(vocabulary_ids(tensors["d2t"]))
        if next(model.parameters()).device.type == "cpu":
            from tide_cli.engine.cpu.packed_linear import repack

            repack(model)


def _words(error: Exception) -> str:
    return "; ".join(error.lines()) if isinstance(error, TideError) else repr(error)
