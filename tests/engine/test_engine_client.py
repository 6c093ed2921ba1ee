"""A swap over HTTP with an engine that answers late."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tide_cli.engine.client import EngineClient
from tide_cli.errors import TideError


class LateEngine:
    """Serves v0001. late: requests to come that time out, by what they ask; apply: whether it swaps all the same."""

    def __init__(self, late: dict[str, int], apply: bool = True, refusal: str | None = None) -> None:
        self.late, self.apply, self.refusal = dict(late), apply, refusal
        self.version, self.prepared = 1, None
        self.client = EngineClient("127.0.0.1", 9)
        self.client._http = httpx.Client(base_url=self.client.base_url, transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        asked: dict[str, Any] = json.loads(request.content)["server_args"] if request.content else {}
        self.prepared = asked.get("tide_prepare", self.prepared)
        name = next(iter(asked), "state")
        if "tide_draft" in asked and self.apply and self.refusal is None:
            self.version = asked["tide_draft"]
        if self.late.get(name, 0) > 0:
            self.late[name] -= 1
            raise httpx.ReadTimeout("timed out", request=request)
        state = {"draft_version": self.version, "prepared": self.prepared, "swap_seconds": 0.01}
        refusal = self.refusal if self.prepared else None
        return httpx.Response(200, json={"internal_states": [{"tide": {**state, "refusal": refusal}}]})


@pytest.mark.parametrize("late", [{"tide_draft": 1}, {"state": 3}, {"tide_draft": 1, "state": 2}])
def test_what_the_engine_serves_decides_and_not_whether_its_answer_came_in_time(late: dict[str, int]) -> None:
    engine = LateEngine(late)
    assert engine.client.swap(2) == 0.01
    assert engine.version == 2
    assert not any(engine.late.values())


def test_an_engine_that_never_takes_the_version_is_given_up() -> None:
    with pytest.raises(TideError, match="the engine refused draft v0002") as refused:
        LateEngine({"tide_draft": 1}, apply=False).client.swap(2, timeout=0.0)
    assert refused.value.why == "it still reports another version"
    with pytest.raises(TideError, match="did not answer the swap"):
        LateEngine({"state": 99}).client.swap(2, timeout=0.0)


def test_an_answer_that_came_is_believed_at_once() -> None:
    with pytest.raises(TideError, match="the engine refused draft v0002"):
        LateEngine({}, apply=False).client.swap(2)
    with pytest.raises(TideError) as refused:
        LateEngine({}, refusal="not finite").client.swap(2)
    assert refused.value.why == "not finite"
