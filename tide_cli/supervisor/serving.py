"""Which draft is in the engine, and which one shall be. Pure: told what happened, it returns actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tide_cli.adaptation.rollback import Watch, anew
from tide_cli.supervisor.messages import (
    CANCELLED,
    Action,
    Answer,
    MarkBad,
    Note,
    Passed,
    Serve,
    Swap,
    Swapped,
    Tell,
    UseAsked,
)
from tide_cli.supervisor.performance import Finding, Performance

TOO_LATE = "; too late: another version is served, or about to be"
_AGAIN = (10.0, 60.0)  # seconds after which a version that has passed the gate and was refused is asked for again
ATTEMPTS = len(_AGAIN) + 1  # at a swap to it, over all lives of the supervisor


@dataclass(frozen=True)
class Doubt:
    """The served version falls short of `previous`, the one before. found: the finding's data; reason: in words.

    asked: the trainer has been asked to compare the two; again: after an earlier doubt it has failed to.
    """

    version: int
    previous: int
    reason: str
    found: Mapping[str, Any]
    asked: bool = False
    again: bool = False


@dataclass(frozen=True)
class Wish:
    """A version that shall be served, and watched against the one before.

    gate: the figures by which it has passed against that one; ticket: of the user who has asked for it. doubt: why the
    one before is taken back; this one is then its predecessor, and not watched. from_pool: it was kept and suits the
    traffic since the last drift.
    """

    version: int
    gate: Mapping[str, Any] | None = None
    ticket: int | None = None
    doubt: Doubt | None = None
    from_pool: bool = False


class Serving:
    """The served version, the one that is wished for, the swap under way, and a doubt about the served one.

    trial: the watch that an earlier life of the supervisor has not brought to its end.
    """

    def __init__(self, performance: Performance, trial: Watch | None = None) -> None:
        self._performance = performance
        self._trial = trial
        self.served: int | None = None
        self.wish: Wish | None = None  # until the engine has taken it or refused it
        self.doubt: Doubt | None = None
        self.passed: Passed | None = None  # until it is served, or another one is
        self._unconfirmed: Wish | None = None  # the last one that was refused, which may still be carried out
        self._reported: int | None = None  # another version than the served one, which the engine says it has
        self._swap: Swap | None = None  # not the wish's own where a version was taken back meanwhile
        self._uncompared: int | None = None  # the served version, where a comparison with the one before has failed

    def starts_with(self, version: int | None, passed: Passed | None = None) -> None:
        """The engine is started with this version. passed: one that an earlier life has not come to serve."""
        self.served, self.passed = version, passed
        if version is not None:
            self._performance.changed(version, None, trial=False)
            if self._trial is not None and self._trial.version == version:
                self._performance.watch = anew(self._trial)

    @property
    def under_way(self) -> Swap | None:
        """The swap that the engine was asked for and has not answered."""
        return self._swap

    @property
    def in_use(self) -> set[int]:
        """Versions that are, or may soon be, in service: none of them may be removed."""
        watch, doubt = self._performance.watch, self.doubt
        ways_back = [one.previous for one in (watch, doubt) if one]
        coming = [one.version for one in (self.wish, self.passed, self._swap, self._unconfirmed) if one]
        return {*ways_back, *coming, *([] if self.served is None else [self.served])}

    def stays(self, version: int | None) -> bool:
        """Whether this version is served and none is to replace it: what is learned of another comes too late."""
        return self.wish is None and version == self.served

    def next_swap(self, engine: int | None) -> list[Action]:
        """The swap that is due. engine: the generation of the engine where it is READY, else None."""
        if engine is None or self.wish is None or self._swap is not None:
            return []
        self._swap = Swap(self.wish.version, engine)
        return [self._swap]

    def follow(self, now: float) -> bool:
        """Wish for the version that has passed the gate, if it is due; whether it is.

        Where the served one is in doubt it waits: it was judged against that one alone.
        """
        passed = self.passed
        if passed is None or self.wish is not None or self.doubt is not None or now < passed.after:
            return False
        self.wish = Wish(passed.version, gate=passed.gate)
        return True

    def use_asked(self, message: UseAsked, engine_ready: bool) -> list[Action]:
        """`tide drafts use`: swap to a version, whatever the gate says."""
        if self.served is None:
            return [Answer(message.ticket, False, "speculation is off: no draft is served")]
        if not engine_ready:
            return [Answer(message.ticket, False, "the engine is not ready; try again when `tide ps` says READY")]
        if self.wish is not None:
            return [Answer(message.ticket, False, "another swap is under way; try again in a moment")]
        self.wish = Wish(message.version, ticket=message.ticket)
        return [Note("use", f"v{message.version:04d} asked for by the user", {"version": message.version})]

    def swapped(self, message: Swapped, now: float) -> list[Action]:
        """The engine's answer to a swap."""
        if self._swap != Swap(message.version, message.generation):
            return []
        self._swap = None
        name, wish = f"v{message.version:04d}", self.wish
        if wish is not None and wish.version != message.version:
            wish = None  # no longer
        if message.error is None:
            return [*self._serves(message.version, wish), *self._fulfilled(wish, True, f"{name} is served")]
        self._unconfirmed = wish
        text = f"{name} not taken: {message.error}{self._refused(message.version, now)}"
        note = Note("swap_refused", text, {"version": message.version})
        if wish is not None and wish.doubt is not None:
            self._watch_on(wish.doubt)  # it has to stay for now: the next doubt tries again
        return [note, *self._fulfilled(wish, False, f"{name} was refused: {message.error}")]

    def reported(self, version: int | None) -> list[Action]:
        """The draft that the engine says it has: a swap that counts as refused may have been carried out late.

        Believed when it says so twice: one report may be older than the last swap.
        """
        if version is None or self.served is None or version == self.served or self._swap is not None:
            self._reported = None
            return []
        if self._reported != version:
            self._reported = version
            return []
        wish = self._unconfirmed if self._unconfirmed and self._unconfirmed.version == version else Wish(version)
        return self._serves(version, wish, "; the engine has not confirmed the swap, and reports it")

    def _serves(self, version: int, wish: Wish | None, more: str = "") -> list[Action]:
        """The engine has this version from now on."""
        passed, before = self.passed, self.served
        # what the version that leaves had come to, to be compared with
        data = {"version": version, "before": before, "domains": self._performance.domains}
        data["pool"] = wish is not None and wish.from_pool
        self.served, self.doubt, self.passed, self._uncompared = version, None, None, None
        self._unconfirmed = self._reported = None
        trial = wish is not None and wish.doubt is None
        self._performance.changed(version, wish.gate if wish else None, trial=trial)
        watch = self._performance.watch
        data["watch"] = watch.to_json() if watch else None  # as it begins, for a supervisor that starts anew
        actions: list[Action] = [Serve(version), Note("swap", f"v{version:04d} is served{more}", data)]
        if passed is not None and before is not None and passed.version != version:
            why = "was chosen after it" if version == before else "has left, against which it has passed the gate"
            text = f"v{passed.version:04d} is not served: v{before:04d} {why}"
            actions.append(Note("passed_over", text, {"version": passed.version}))
        return actions

    def _refused(self, version: int, now: float) -> str:
        """What becomes of the version that has passed the gate, in words, where it is this one."""
        passed = self.passed
        if passed is None or passed.version != version:
            return ""
        if passed.refusals + 1 >= ATTEMPTS:
            self.passed = None
            return f"; that was the last of {ATTEMPTS} attempts"
        wait = _AGAIN[passed.refusals]
        self.passed = replace(passed, refusals=passed.refusals + 1, after=now + wait)
        return f"; the next attempt follows in {wait:.0f} s"

    def engine_gone(self) -> list[Action]:
        """The engine ended: a swap that is still under way is taken up again when it is back, unless the user has asked
        for it, who is told."""
        self._swap = self._unconfirmed = self._reported = None
        if self.wish is None or self.wish.ticket is None:
            return []
        return self._fulfilled(self.wish, False, "the engine ended")

    def _fulfilled(self, wish: Wish | None, ok: bool, text: str) -> list[Action]:
        """A wish, None where it was another's swap, has come to its end."""
        if wish is None:
            return []
        self.wish = None
        return [] if wish.ticket is None else [Answer(wish.ticket, ok, text)]

    # --- whether the served version keeps its promise

    def found(self, finding: Finding) -> list[Action]:
        """What live requests say: a version that is seldom right at all goes at once, unless the user has just asked
        for another one."""
        if finding.kind == "doubt":
            data = finding.data
            again = data["version"] == self._uncompared
            self.doubt = Doubt(data["version"], data["previous"], data["reason"], data, again=again)
            if data["hopeless"] and (self.wish is None or self.wish.ticket is None):
                return self.take_back(self.doubt)
        return [Note(finding.kind, finding.text, finding.data)]

    def compare(self, doubt: Doubt) -> Tell:
        """Have the trainer replay the version in doubt and the one before on the newest samples."""
        self.doubt = replace(doubt, asked=True)
        return Tell({"cmd": "choose", "served": doubt.version, "among": [doubt.previous]})

    def compared(self, event: Mapping[str, Any]) -> list[Action]:
        """The trainer's answer; where the version before could not be replayed, the served one stays."""
        doubt, reason = self._asked, str(event.get("reason", ""))
        if doubt is None or reason == CANCELLED:
            return [Note("pool", f"comparison with the version before: {reason}{'' if doubt else TOO_LATE}", event)]
        if event.get("version") is not None:
            return self.take_back(doubt, reason)
        walked = event.get("walked")
        if walked and all(walk.get("lower_bound") is None for walk in walked):  # there were too few samples
            return self.not_compared()
        self.doubt = None
        served, before = (f"v{version:04d}" for version in (doubt.version, doubt.previous))
        text = f"{served} stays: on the newest samples {before} is no better ({reason})"
        if walked == []:  # the trainer leaves out what is damaged, or of another make
            text = f"{served} stays: {before} cannot be walked, nor served in its place"
        return [Note("trusted", text, {**doubt.found, "walked": walked})]

    def not_compared(self) -> list[Action]:
        """The trainer has failed to, which says nothing about the version in doubt: it is watched anew. Where it falls
        short again, and they cannot be compared again, the doubt decides."""
        doubt = self._asked
        if doubt is None:
            return []
        if doubt.again:
            return self.take_back(doubt, f"{doubt.reason}; for the second time, and no comparison has come to its end")
        self.doubt, self._uncompared = None, doubt.version
        self._watch_on(doubt)
        text = f"v{doubt.version:04d} stays for now and is watched anew: it could not be compared with the one before"
        return [Note("pool", text, doubt.found)]

    def _watch_on(self, doubt: Doubt) -> None:
        """Watch the version in doubt anew, if it is still served."""
        if doubt.version == self.served:
            self._performance.watch = anew(Watch.from_json(doubt.found["watch"]))

    @property
    def _asked(self) -> Doubt | None:
        """The doubt that an answer of the trainer is about; None where another version has come, or is to come."""
        return self.doubt if self.doubt is not None and self.doubt.asked and self.stays(self.doubt.version) else None

    def take_back(self, doubt: Doubt, reason: str | None = None) -> list[Action]:
        """The version in doubt goes. A swap to a successor that is under way is followed by the one back."""
        text = f"v{doubt.version:04d} is taken back, v{doubt.previous:04d} returns: {reason or doubt.reason}"
        self.wish, self.doubt = Wish(doubt.previous, doubt=doubt), None
        return [Note("rollback", text, doubt.found), MarkBad(doubt.version, text)]
