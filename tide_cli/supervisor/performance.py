"""What the live requests say of the served draft: keep it, take it back, or train because the traffic has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tide_cli.adaptation import drift, rollback
from tide_cli.adaptation.decided import decided_from
from tide_cli.adaptation.drift import DriftRules, DriftState
from tide_cli.adaptation.lengths import Lengths
from tide_cli.adaptation.rollback import RollbackRules, Watch
from tide_cli.telemetry.totals import ServedRequest

_DOMAINS = 32  # labels whose figures are kept at most, those heard of last: a client may send a new one each time


@dataclass(frozen=True)
class Finding:
    """kind: 'doubt' (of a version that falls short), 'trusted' or 'drift'; text: words; data: what it was found from.

    A doubt's data say whether it is `hopeless`; else both versions should be walked over the newest samples.
    """

    kind: str
    text: str
    data: Mapping[str, Any]


class Performance:
    """Live acceptance length of the served version, and of the one before it while the new one is on trial."""

    def __init__(self, drift_rules: DriftRules, rollback_rules: RollbackRules) -> None:
        self._drift_rules, self._rollback_rules = drift_rules, rollback_rules
        self._served: int | None = None
        self._seen = Lengths()
        self._of_late = Lengths()  # since the traffic has last changed: what a successor is measured by
        self._domains: dict[str, Lengths] = {}
        self._drift = DriftState()
        self.watch: Watch | None = None

    @property
    def seen(self) -> Lengths:
        """What was observed of the served version in this life of the supervisor."""
        return self._seen

    @property
    def domains(self) -> dict[str, dict[str, float]]:
        """`acceptance_length` and number of `requests` of the served version by the label that clients gave."""
        return {
            name: {"acceptance_length": round(seen.length, 4), "requests": seen.count}
            for name, seen in self._domains.items()
        }

    def changed(self, version: int, gate: Mapping[str, Any] | None, *, trial: bool) -> None:
        """Another version is served. trial: whether it is watched against the one before.

        gate: the figures it was published with, `candidate_al` and `served_al`; None where no gate has judged it
        against the version before.
        """
        if version == self._served:
            return
        previous, before = self._served, self._of_late
        self._served, self._seen, self._of_late, self._domains = version, Lengths(), Lengths(), {}
        self._drift = DriftState()
        self.watch = None
        if trial and previous is not None:
            figures = gate or {}
            self.watch = Watch(version, previous, figures.get("candidate_al"), figures.get("served_al"), before=before)

    def observe(self, requests: Iterable[ServedRequest]) -> list[Finding]:
        """More requests have ended; those of another version than the served one began before a swap."""
        findings: list[Finding] = []
        for request in requests:
            if request.version != self._served:
                continue
            self._seen = self._seen.add(request.tokens, request.steps)
            self._of_late = self._of_late.add(request.tokens, request.steps)
            self._add_to_domain(request)
            findings += self._watch_one(request)
            given = {"tokens": request.tokens, "steps": request.steps}
            before = self._drift
            self._drift, seen = drift.observe(before, self._drift_rules, **given)
            if seen.drifted:
                self._of_late = Lengths()
                found = decided_from(before, self._drift_rules, **given)
                data = {"decided_from": found, "version": self._served, "domains": self.domains}
                findings.append(Finding("drift", seen.reason, data))
        return findings

    def _add_to_domain(self, request: ServedRequest) -> None:
        if request.domain:
            before = self._domains.pop(request.domain, Lengths())
            self._domains[request.domain] = before.add(request.tokens, request.steps)
            if len(self._domains) > _DOMAINS:
                del self._domains[next(iter(self._domains))]

    def _watch_one(self, request: ServedRequest) -> list[Finding]:
        if self.watch is None:
            return []
        before, given = self.watch, {"tokens": request.tokens, "steps": request.steps}
        watch, decision = rollback.observe(before, self._rollback_rules, **given)
        self.watch = watch if decision.verdict == "watching" else None
        if self.watch is not None:
            return []
        name = f"v{watch.version:04d}"
        data = {"version": watch.version, "previous": watch.previous, "watch": watch.to_json(), "domains": self.domains}
        data["decided_from"] = decided_from(before, self._rollback_rules, **given)
        if decision.verdict == "rolled_back":
            hopeless = rollback.is_hopeless(watch, self._rollback_rules)
            perhaps = "" if hopeless else ", which may be the traffic's doing"
            text = f"{name} falls short{perhaps}: {decision.reason}"
            return [Finding("doubt", text, data | {"reason": decision.reason, "hopeless": hopeless})]
        return [Finding("trusted", f"{name} keeps its promise: {decision.reason}", data)]
