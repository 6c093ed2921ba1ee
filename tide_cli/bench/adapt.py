"""`tide bench adapt`: traffic that shifts, answered by a draft that stands still and by one that goes on learning.

First a draft is trained on general traffic, through TIDE's own loop; the state folder is then copied. One copy serves
without a trainer (the static arm), the other goes on as it is (TIDE's arm). Both get the same requests in the same
order, piece by piece in turns. While one answers, the other one's engine sleeps and TIDE's trainer goes on beside
either of them, so that both bear the same load; the trainer therefore has more seconds for each token of traffic than
it would have alone. In the end both drafts answer prompts that were never traffic, in the same engine, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tide_cli.bench.adapt_clock import Session
from tide_cli.bench.adapt_figures import OWN, PLAIN, POLICY, STATIC, TIDE, Measured, Pass, acceptance_length
from tide_cli.bench.adapt_kept import ANOTHER, open_results, write_report
from tide_cli.bench.adapt_options import ALL_STAY, OWN_SETTINGS, AdaptOptions, Script
from tide_cli.bench.adapt_report import adapt_figures
from tide_cli.bench.adapt_traffic import Piece, digests, sums, told
from tide_cli.bench.arms import Arms, pause, send, settle, short_cycles, warm_up
from tide_cli.bench.client import Answer
from tide_cli.bench.conditions import changed_machine
from tide_cli.bench.engines import Appliance, room_for, state_folder
from tide_cli.bench.interrupts import Interrupts
from tide_cli.bench.progress import Progress
from tide_cli.bench.report import make_report
from tide_cli.bench.scratch import BENCH
from tide_cli.bench.shift import pieces, turns
from tide_cli.errors import UsageError, reason
from tide_cli.json_files import checked
from tide_cli.supervisor.journal import read_events


def run_adapt(
    options: AdaptOptions, folder: Path | None, environment: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """The report of the experiment; see `adapt_report`. With a folder an interrupted one is gone on with.

    Nothing it started is left behind. Raises TideError or UsageError, and KeyboardInterrupt where a signal ended it.
    """
    with (
        Interrupts() as interrupts,
        state_folder(folder, keep=False, prefix=BENCH) as place,
    ):
        return _Adapt(options, place, interrupts, environment, progress).run()


class _Adapt:
    def __init__(
        self,
        options: AdaptOptions,
        folder: Path,
        interrupts: Interrupts,
        environment: dict[str, Any],
        progress: Progress,
    ) -> None:
        self._options, self._folder, self._progress = options, folder, progress
        self._environment = environment
        self._script = Script.of(options)
        at_once = max(*options.concurrency, *options.measure_at)
        common = {"speculation": "on", **dict(options.settings)}
        common["max_running_requests"] = room_for(at_once, common)
        self._arms = Arms(folder, short_cycles(**common), interrupts)
        # without those that OWN_SETTINGS settles for every arm that learns
        self._settings = {name: value for name, value in self._arms.effective().items() if name not in ALL_STAY}
        self._results = open_results(folder, options, self._settings, self._script.digest(), environment)
        try:
            self._passes = [checked(Pass, entry) for entry in self._of("pass")]
            self._check_places()
            done = [checked(Measured, entry).requests for entry in self._of("measured")]
            done += [int(entry["requests"]) for entry in self._of("general_pass")]
            for entry in self._of("session"):
                checked(Session, entry)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{folder} cannot be gone on with", why=reason(error), remedy=ANOTHER) from None
        self._begun_under = self._results.head.get("environment", environment)
        self._done = sum(done) + sum(one.requests for one in self._passes)
        self._total = self._script.requests(options)

    def _check_places(self) -> None:
        """ValueError, KeyError or TypeError for kept records that are not of this script."""
        known = {
            (phase, piece, arm)
            for phase in range(len(self._script.phases))
            for piece in range(len(self._script.pieces(phase, self._options)))
            for arm in self._options.arms
        }
        for one in self._passes:
            if (one.phase, one.piece, one.arm) not in known or len(one.texts) not in (0, one.requests):
                raise ValueError(f"piece {one.piece} of phase {one.phase} is not what it should be")
        for entry in self._of("general_pass"):
            int(entry["piece"])
        for entry in self._of("static"):
            int(entry["version"])
        for entry in self._of("final"):
            for arm in {TIDE, *[POLICY] * self._options.with_policy}:
                int(entry["versions"][arm])

    def run(self) -> dict[str, Any]:
        with self._results:
            if changed := changed_machine(self._begun_under, self._environment):
                self._progress.say(f"begun under other conditions: {'; '.join(changed)}")
                if not self._of("finished"):
                    self._add("machine", changed=changed)
            self._train_static()
            self._shift()
            self._measure()
            if not self._of("finished"):
                self._add("finished", time=time.time())
            self._write_report()
            return self._report()

    # --- the static draft

    def _train_static(self) -> None:
        """Leaves the state folders of all arms, with the same draft served, and the entry `static`."""
        if self._of("static"):
            return
        words = (
            f"{len(self._script.general)} requests of general traffic" if self._script.general else "no general traffic"
        )
        self._progress.say(f"the draft that every arm begins with: {words}")
        with self._standing([TIDE]) as arms:
            tide = arms[TIDE]
            if self._script.general:
                pause(tide, False)
            answered = {entry["piece"] for entry in self._of("general_pass")}
            # the pieces are larger here: nobody waits for a turn
            for number, requests in enumerate(pieces(self._script.general, 4 * self._options.piece)):
                if number not in answered:
                    answers = self._send(tide, Piece(requests, self._options.concurrency[0]), captured=True)
                    self._add("general_pass", piece=number, **sums(answers))
            version = settle(tide)
            status = tide.status()
        for arm in self._options.arms:
            if arm != TIDE:
                self._arms.copy(TIDE, arm)
        self._add(
            "static",
            version=version,
            captured_tokens=status["spool"].get("tokens", 0),
            last_gate=status["gate"]["reason"] if status["gate"] else None,
        )
        self._progress.say(f"  v{version:04d} is served by every arm")

    # --- the shift

    def _shift(self) -> None:
        """Every phase's pieces, answered by every arm; then the live arms' last cycles, and the entry `final`."""
        if self._of("final"):
            return
        options = self._options
        done = {(one.phase, one.piece, one.arm) for one in self._passes}
        live = [arm for arm in options.arms if arm != STATIC]
        with self._standing(options.arms) as arms:
            if self._passes:
                self._add("session", **asdict(Session(time.time())))
            for arm in live:
                pause(arms[arm], False)
            for number, phase in enumerate(self._script.phases):
                left = [
                    (place, piece, waiting)
                    for place, piece in enumerate(self._script.pieces(number, options))
                    if (waiting := [arm for arm in turns(options.arms, piece.turn) if (number, place, arm) not in done])
                ]
                if not left:
                    continue
                self._progress.say(f"phase {number + 1} of {len(self._script.phases)}: {phase.name}")
                for place, piece, waiting in left:
                    for arm in waiting:
                        self._pass(number, place, arm, arms[arm], piece)
                    self._tell_piece(number, place)
                self._write_report()
            self._progress.say("waiting for the last training cycle")
            versions = {arm: settle(arms[arm]) for arm in live}
        self._add("final", versions=versions)

    def _pass(self, phase: int, place: int, arm: str, appliance: Appliance, piece: Piece) -> None:
        begun = time.time()
        answers = self._send(appliance, piece, captured=True)
        status = appliance.status()
        made = Pass(
            phase=phase,
            piece=place,
            arm=arm,
            begun=begun,
            draft=status["drafts"]["served"],
            training=status["training"]["running"],
            concurrency=piece.concurrency,
            texts=digests(answers),
            **sums(answers),
        )
        self._passes.append(made)
        self._add("pass", **asdict(made))

    def _tell_piece(self, phase: int, place: int) -> None:
        of = {one.arm: one for one in self._passes if (one.phase, one.piece) == (phase, place)}
        load = f", {of[TIDE].concurrency} at a time" if len(self._options.concurrency) > 1 else ""
        self._progress.say(f"  piece {place + 1}{load}: " + ", ".join(told(of[arm]) for arm in self._options.arms))

    # --- both drafts side by side

    def _measure(self) -> None:
        """Every domain's held-out prompts with every draft, the trainer idle."""
        options = self._options
        static, final = self._of("static")[0]["version"], self._of("final")[0]["versions"]
        done = {(one["domain"], one["concurrency"], one["round"], one["contestant"]) for one in self._of("measured")}
        wanted = [
            (concurrency, name, number)
            for concurrency in options.measure_at
            for number in range(options.rounds)  # so that an early look finds a round of every domain
            for name in self._script.measured
        ]
        contestants = {name: self._contestants(name, static, final) for name in self._script.measured}
        left = [
            (concurrency, name, number, contestant)
            for concurrency, name, number in wanted
            for contestant in turns(list(contestants[name]), number)
            if (name, concurrency, number, contestant) not in done
        ]
        if not left:
            return
        self._progress.say(f"measuring on {options.held_out} held-out prompts of each domain, the trainer idle")
        live = [TIDE, *[POLICY] * options.with_policy]
        with self._standing([*live, *[PLAIN] * options.plain]) as arms:
            for learner in live:
                settle(arms[learner])
            for concurrency, name, number, contestant in left:
                version = contestants[name][contestant]
                arm = arms[contestant if contestant in (PLAIN, POLICY) else TIDE]
                if version is not None:
                    arm.use_draft(version)
                # what is cached holds the draft states of the version before, and would spare the prefill
                arm.flush_cache()
                piece = Piece(tuple(self._script.measured[name]), concurrency)
                # the policy goes by what is accepted, of which TIDE's own requests say nothing
                counts = sums(self._send(arm, piece, captured=contestant == POLICY))
                made = Measured(name, concurrency, number, contestant, version, **counts)
                self._add("measured", **asdict(made))
                length = acceptance_length([made])
                drafts = f"acceptance length {length:.2f}, " if length is not None else ""
                rate = made.tokens / (made.seconds or 1)
                self._progress.say(f"  {name}, {concurrency} at a time, {contestant}: {drafts}{rate:.1f} tok/s")
                self._write_report()

    def _contestants(self, domain: str, static: int, final: Mapping[str, int]) -> dict[str, int | None]:
        """Name to draft version, None for no draft. The domain's own: as its last phase ended, where it is another.
        The policy's is of its own arm, which has learned on its own."""
        found: dict[str, int | None] = {STATIC: static, TIDE: final[TIDE]}
        ended = [one.draft for one in self._passes if one.arm == TIDE and self._script.phases[one.phase].name == domain]
        if ended and ended[-1] not in (static, final[TIDE], None):
            found[OWN] = ended[-1]
        if self._options.with_policy:
            found[POLICY] = final[POLICY]
        return found | ({PLAIN: None} if self._options.plain else {})

    # --- common

    def _of(self, kind: str) -> list[dict[str, Any]]:
        """What was noted under `kind`, in order."""
        return [
            {name: part[name] for name in part if name != "kind"}
            for part in self._results.parts
            if part["kind"] == kind
        ]

    def _add(self, kind: str, **values: Any) -> None:
        self._results.add({"kind": kind, **values})

    @contextmanager
    def _standing(self, names: Sequence[str]) -> Iterator[dict[str, Appliance]]:
        self._progress.say(f"starting {len(names)} engine{'s' if len(names) > 1 else ''}")
        with self._arms.standing({name: OWN_SETTINGS[name] for name in names}) as arms:
            for appliance in arms.values():
                warm_up(appliance)
            yield arms

    def _send(self, appliance: Appliance, piece: Piece, *, captured: bool) -> list[Answer]:
        def answered(_: Answer) -> None:
            self._done += 1
            self._progress.tick(self._done, self._total)

        return send(
            appliance,
            piece.requests,
            piece.concurrency,
            arrivals=piece.arrivals,
            captured=captured,
            on_answer=answered,
            all_may_fail=True,
        )

    def _report(self) -> dict[str, Any]:
        options = self._options
        kinds = ("general_pass", "static", "pass", "session", "machine", "final", "measured", "finished")
        asked = {"prompts_sha256": self._script.digest(), "settings": self._settings}
        figures = adapt_figures(
            options.to_json() | asked,
            [phase.name for phase in self._script.phases],
            options.arms,
            {kind: self._of(kind) for kind in kinds},
            read_events(self._arms.settings(TIDE).paths.database),
        )
        return make_report(self._begun_under, adapt=figures)

    def _write_report(self) -> None:
        """What there is so far, beside the records."""
        write_report(self._folder, self._report())
