"""Draft swap: `POST /set_internal_state {"server_args": {"tide_draft": 7}}` puts version 7 into the running engine.

The scheduler runs the handler between two steps, so no request is paused. Everything is read and validated before
the first byte is written. The draft's embedding is the target's own tensor and is never written. The vocabulary map
was copied by the worker at its start; the copy is written in place, together with the head whose rows it names, since
CUDA graphs hold that very tensor. What was proposed before a change of map and not yet verified is read with the new
one: one round's proposals miss. Output stays exact: the target verifies.

What a draft has cached of a prompt is of no use to another one, and live figures of the new draft would rest on the old
one's states for as long as a common system prompt stays in use. Each version therefore has a prefix cache of its own:
after a swap a prefix is computed once more. Requests that run through a swap keep what they have.
"""

from __future__ import annotations

import logging
import time

import torch

from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.drafts.tensors import check_draft, check_vocabulary_map, read_draft, vocabulary_ids
from tide_cli.engine.plugin.config import EngineConfig
from tide_cli.errors import TideError

logger = logging.getLogger(__name__)


class DraftSwap:
    """The served draft of one scheduler process."""

    def __init__(self, worker, config: EngineConfig) -> None:
        self.version = config.served_version
        self._worker = worker
        self._store = DraftStore(config.drafts)
        self._expected = {
            name: (tuple(tensor.shape), tensor.dtype)
            for name, tensor in read_draft(self._store.path(self.version)).items()
        }
        self._validated: tuple[int, dict[str, torch.Tensor]] | None = None
        self._refusal: str | None = None
        self._seconds: float | None = None

    def begin(self, req) -> None:
        """A request comes in: it is counted for the version served now, and finds and leaves that one's prefixes."""
        req.tide_draft = self.version
        # in front: SGLang looks for a LoRA adapter's id at the end
        req.extra_key = f"tide_draft={self.version}" + (f"|{req.extra_key}" if req.extra_key else "")

    def update_handler(self):
        from sglang.srt.managers.scheduler_components.internal_state import _UpdateHandler

        return _UpdateHandler(self._validate, self._apply)

    def state(self) -> dict[str, object]:
        """For /server_info: the served version, why the last request was refused, how long the last copy took."""
        return {"draft_version": self.version, "refusal": self._refusal, "swap_seconds": self._seconds}

    def _validate(self, key: str, value: float) -> None:
        self._validated, self._refusal = None, None
        try:
            version = int(value)
            self._validated = (version, self._read(version))
        except Exception as error:  # an exception that leaves a handler ends the server
            from sglang.srt.managers.scheduler_components.internal_state import UpdateRejected

            self._refusal = "; ".join(error.lines()) if isinstance(error, TideError) else repr(error)
            raise UpdateRejected(f"{key}={value} refused: {self._refusal}") from None

    def _read(self, version: int) -> dict[str, torch.Tensor]:
        """The tensors of `version`, checked; TideError says what is wrong with them."""
        self._store.verify(version)
        tensors = read_draft(self._store.path(version))
        check_draft(tensors, self._expected)
        if "d2t" in tensors:
            check_vocabulary_map(tensors["d2t"], tensors["t2d"])
        return tensors

    def _apply(self, key: str, value: float) -> None:
        version, tensors = self._validated
        self._validated = None
        started = time.monotonic()
        try:
            self._load(tensors)
        except Exception as error:
            logger.exception("tide: swap to %s failed; putting %s back", version_name(version), self.version)
            self._refusal = repr(error)
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
