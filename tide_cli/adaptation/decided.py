"""What a decision was made from, as the row of the events table holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class State(Protocol):
    """Of a policy, as a value."""

    def to_json(self) -> dict[str, Any]: ...


def decided_from(state: State, rules: DataclassInstance, **given: Any) -> dict[str, Any]:
    """{"state", "rules", "input"}: the policy's function, called with these, gives the same decision again.

    state: before the decision; given: the function's other arguments, by their names.
    """
    return {"state": state.to_json(), "rules": asdict(rules), "input": given}
