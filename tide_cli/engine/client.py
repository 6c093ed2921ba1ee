"""Talks to the running engine over HTTP: is it really answering, swap the draft, what are its figures. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tide_cli.drafts.store import version_name
from tide_cli.engine.plugin.profile import BATCHES
from tide_cli.errors import TideError, reason
from tide_cli.spool.erase import Erased, Which, ask, wait_for_answer, withdraw

# A request id that starts so is not traffic: the plugin does not capture it (see plugin/captured.py).
_PROBE_ID = "tide-probe"

_MEASURED_TOKENS = 32  # eight rounds for each of 0…3 draft steps where nothing is accepted, half of that where much is
_ASK_AGAIN = 0.05  # seconds between two looks whether a draft has been read, or taken
_FLUSH_TIMEOUT = 30  # seconds the engine may take to become idle; it flushes only then


class EngineClient:
    """One engine's HTTP API. Thread-safe; close() when done."""

    def __init__(self, host: str, port: int, timeout: float = 30.0) -> None:
        self.base_url = f"http://{host if host not in ('0.0.0.0', '::') else '127.0.0.1'}:{port}"
        self._http = httpx.Client(base_url=self.base_url, timeout=timeout, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def first_token(self, timeout: float = 60.0) -> str:
        """Text of one generated token: proof that the whole path works. Raises httpx.HTTPError while it does not."""
        answer = self._http.post(
            "/generate",
            json={
                "text": "Hello",
                "rid": _PROBE_ID,
                "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            },
            timeout=timeout,
        )
        answer.raise_for_status()
        return answer.json()["text"]

    def swap(self, version: int, timeout: float = 120.0) -> float:
        """Put a draft version into the engine; returns the seconds its copy took.

        Returns after every scheduler has confirmed it; none of them copies before all have it ready. What counts is
        what they report afterwards: an order whose answer is late is none that was not carried out. timeout: seconds
        for the order to prepare, the preparation, the order to swap and its confirmation, each. Raises TideError with
        the engine's reason when refused.
        """
        try:
            self.set_state(timeout, tide_prepare=version)
            states = self._states_when(lambda state: state["prepared"] == version, timeout)
            if states and not any(state["refusal"] for state in states):
                answered = self._order_swap(version, timeout)
                states = self._states_when(lambda state: answered or state["draft_version"] == version, timeout)
        except httpx.HTTPError as error:
            raise TideError(
                f"the engine did not answer the swap to {version_name(version)}", why=reason(error)
            ) from None
        refusals = [state["refusal"] for state in states if state["refusal"]]
        if refusals or any(state["draft_version"] != version for state in states) or not states:
            why = refusals[0] if refusals else "it still reports another version"
            raise TideError(f"the engine refused draft {version_name(version)}", why=why)
        return max(state["swap_seconds"] or 0.0 for state in states)

    def _order_swap(self, version: int, timeout: float) -> bool:
        """Whether the engine has answered in time; else it is busy, and may carry the order out later."""
        try:
            self.set_state(timeout, tide_draft=version)
        except httpx.TimeoutException:
            return False
        return True

    def _states_when(self, settled: Callable[[dict[str, Any]], bool], timeout: float) -> list[dict[str, Any]]:
        """The states once every scheduler's is `settled`, or one of them has refused, or `timeout` seconds are over.

        Until then an answer that does not come in time, as during a long prefill, is asked for again.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                states = self.tide_states()
            except httpx.TimeoutException:
                if time.monotonic() > deadline:
                    raise
                continue
            if any(state["refusal"] for state in states) or all(map(settled, states)) or time.monotonic() > deadline:
                return states
            time.sleep(_ASK_AGAIN)

    def set_state(self, timeout: float = 30.0, **values: float) -> Any:
        """What the plugin's handlers take: tide_prepare, tide_draft, tide_erase, tide_steps, tide_profile; returns
        SGLang's answer.

        Raises httpx.HTTPError.
        """
        answer = self._http.post("/set_internal_state", json={"server_args": values}, timeout=timeout)
        return answer.raise_for_status().json()

    def erase(self, folder: Path, which: Which, timeout: float = 600.0) -> Erased:
        """Erases stored samples of the spool in `folder`, which this engine holds. TideError where it does not."""
        try:
            number = ask(folder, which)
        except OSError as error:
            raise TideError(
                "the engine could not be asked to erase samples",
                why=f"{folder}: {reason(error)}",
                remedy="mend that; or `tide down`, and erase without an engine, which needs no room on the disk",
            ) from None
        try:
            accepted = self.set_state(tide_erase=number)
        except httpx.HTTPError as error:
            withdraw(folder, number)
            raise TideError("the engine did not answer the request to erase samples", why=reason(error)) from None
        if not any(accepted):
            withdraw(folder, number)
            raise TideError(
                "the engine refused to erase samples",
                why="it does not capture",
                remedy="`tide doctor`; or `tide down`, and erase without an engine",
            )
        return wait_for_answer(folder, number, timeout)

    def tide_states(self, timeout: float = 30.0) -> list[dict[str, Any]]:
        """What TIDE's plugin reports, per scheduler: draft_version, refusal, swap_seconds, run, capture
        counters, fill of the spool, speculation (see plugin/speculation.py).

        Empty where the engine runs without speculation. Raises httpx.HTTPError.
        """
        answer = self._http.get("/server_info", timeout=timeout)
        answer.raise_for_status()
        return [state["tide"] for state in answer.json().get("internal_states", []) if "tide" in state]

    def speculation(self) -> dict[str, Any] | None:
        """What plugin/speculation.py reports, of the first scheduler; None without a draft. Raises httpx.HTTPError."""
        states = self.tide_states()
        return states[0].get("speculation") if states else None

    def measure(self) -> dict[str, Any]:
        """Have the engine measure its round times with requests of TIDE's own; returns the profile that it keeps,
        with the name of its file. unmeasured: the batch sizes that other requests left no rounds to.

        Takes some seconds; other requests go on meanwhile. Raises TideError where the number of draft steps is fixed or
        nothing could be measured, httpx.HTTPError where the engine does not answer.
        """
        state = self.speculation()
        if state is None or not state["adaptive"]:
            raise TideError(
                "there is nothing to measure for",
                why="the number of draft steps is fixed" if state else "the engine decodes without a draft",
                remedy="`tide up --speculation auto` chooses it for each round",
            )
        sizes = [size for size in BATCHES if size <= state["max_running_requests"]]
        self.set_state(tide_profile=1)
        try:
            for size in sizes:
                self._generate_own("profile", size, _MEASURED_TOKENS)
        except BaseException:
            self.set_state(tide_profile=-1)
            raise
        self.set_state(tide_profile=0)
        profile = (self.speculation() or {}).get("profile")
        if profile is None:
            raise TideError("no round times could be measured", remedy="`tide logs engine` may say why")
        new = state["profile"] is None or profile["measured"] != state["profile"]["measured"]
        seen = {row["batch"] for row in profile["rounds"]} - set(profile.get("kept", ())) if new else set()
        return profile | {"unmeasured": [size for size in sizes if size not in seen]}

    def _generate_own(self, name: str, requests: int, tokens: int) -> None:
        answer = self._http.post(
            "/generate",
            json={
                "text": ["Hello"] * requests,
                "rid": [f"tide-{name}-{i}" for i in range(requests)],
                "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
            },
            timeout=120.0,
        )
        answer.raise_for_status()

    def metrics_text(self) -> str:
        """The engine's Prometheus page. Raises httpx.HTTPError."""
        answer = self._http.get("/metrics", timeout=5.0)
        answer.raise_for_status()
        return answer.text

    def flush_cache(self) -> None:
        """Empty the prefix cache, as soon as no request is running: no draft is judged on another one's cached states.

        Raises TideError.
        """
        try:
            answer = self._http.post("/flush_cache", params={"timeout": _FLUSH_TIMEOUT}, timeout=2 * _FLUSH_TIMEOUT)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise TideError("the engine does not empty its prefix cache", why=reason(error)) from None
