"""On drift, where no kept version may replace the served one: which one training should begin from all the same."""

from __future__ import annotations

from collections.abc import Mapping

from tide_cli.adaptation.gate import GateDecision


def worth_starting_from(gates: Mapping[int, GateDecision]) -> int | None:
    """The version with the highest gain, where that is more than noise; None where none is.

    gates: each version against the draft that training would go on with. Less is asked than for serving it: whatever
    training makes of it must pass the gate itself. A gain counts as more than noise above half of what its lower bound
    takes off, which is about one standard error.
    """
    better = {
        version: gate.gain
        for version, gate in gates.items()
        if gate.lower_bound is not None and gate.gain > (gate.gain - gate.lower_bound) / 2
    }
    return max(better, key=lambda version: (better[version], version), default=None)
