"""What an adaptation experiment is asked to do, and the requests that follow from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tide_cli.bench.adapt_figures import NO_POOL, PLAIN, POLICY, STATIC, TIDE
from tide_cli.bench.adapt_traffic import Piece, along, cut
from tide_cli.bench.replay import read_trace
from tide_cli.bench.requests import Request, read_requests
from tide_cli.bench.shift import GENERAL, MIXED, Phase, hold_out, interleave, make_phases, never_measured
from tide_cli.errors import UsageError

ALL_STAY = {"keep_drafts": 10_000}  # each domain's own draft is measured at the end

# settings of an arm on top of those of all
OWN_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    STATIC: {"training": False},
    TIDE: ALL_STAY,
    NO_POOL: {"draft_pool": False, **ALL_STAY},
    POLICY: {"speculation": "auto", **ALL_STAY},
    PLAIN: {"training": False, "speculation": "off"},
}


@dataclass(frozen=True)
class AdaptOptions:
    """As on the command line. order: domains as their traffic comes; mixed: requests of all of them at the end.

    general_requests, requests: of the general traffic and of each phase; piece: requests that an arm answers before the
    next one's turn; concurrency: of the pieces of a phase, in turn; the first one also of the general traffic.
    trace: whose arrivals the phases follow instead, `speed` times as fast. held_out: prompts of a domain for measuring;
    measure_at: concurrencies, the first one counts most. settings: of every arm.
    """

    workload: Path
    order: tuple[str, ...]
    general: tuple[str, ...] = ()
    mixed: int = 0
    general_requests: int = 96
    requests: int = 64
    piece: int = 8
    held_out: int = 8
    rounds: int = 3
    max_tokens: int = 96
    concurrency: tuple[int, ...] = (4,)
    trace: Path | None = None
    speed: float = 1.0
    measure_at: tuple[int, ...] = (4,)
    plain: bool = True
    without_pool: bool = False
    with_policy: bool = False
    seed: int = 0
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        return (STATIC, TIDE, *[NO_POOL] * self.without_pool, *[POLICY] * self.with_policy)

    def to_json(self) -> dict[str, Any]:
        first, *more = self.concurrency
        concurrency = list(self.concurrency) if more else first  # a number where it is one
        files = {"workload": str(self.workload), "trace": None if self.trace is None else str(self.trace)}
        return {**asdict(self), **files, "concurrency": concurrency, "settings": dict(self.settings)}

    def differs_from(self, kept: Mapping[str, Any]) -> list[str]:
        """Names of the options that a kept run had otherwise; one that is younger than the run had its default."""
        defaults = {field.name: field.default for field in fields(self) if field.default is not MISSING}
        wanted, had = (_as_kept(one) for one in (self.to_json(), {**defaults, **kept}))
        return sorted(name for name in {*had, *wanted} if had.get(name) != wanted.get(name))


def _check_names(options: AdaptOptions) -> None:
    """UsageError for domains that a report could not tell apart from what it calls by the same name."""
    taken = [*[GENERAL, "general"] * bool(options.general), *[MIXED] * bool(options.mixed)]
    for name in taken:
        if name in options.order:
            raise UsageError(f"no domain can be called {name!r} here", why="a part of the report has that name")
    if len(set(options.general)) < len(options.general):
        raise UsageError(f"--general {','.join(options.general)} names a domain twice")


def _as_kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """As a file gives it back. A number of draft steps was once kept as the text that it was named by."""
    found: dict[str, Any] = json.loads(json.dumps(options))
    settings = found.get("settings")
    if isinstance(settings, dict) and "speculation" in settings:
        settings["speculation"] = str(settings["speculation"])
    return found


@dataclass(frozen=True)
class Script:
    """general: what the first draft is trained on; phases: the traffic of every arm; measured: domain to the prompts
    that are never traffic, GENERAL among them where there is general traffic; arrivals: of each phase's requests, in
    seconds, where a trace says when."""

    general: tuple[Request, ...]
    phases: list[Phase]
    measured: Mapping[str, list[Request]]
    arrivals: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(cls, options: AdaptOptions) -> Script:
        """Reads the workload; the same options give the same script. Raises UsageError."""
        _check_names(options)
        of_general = -(-options.held_out // max(1, len(options.general)))
        # once for each domain: one that is general traffic too must not train on what its own phases keep out
        held_out = dict.fromkeys(options.general, of_general) | dict.fromkeys(options.order, options.held_out)
        split = {
            name: hold_out(
                name,
                read_requests(options.workload, max_tokens=options.max_tokens, domains=[name]),
                count,
                options.seed,
            )
            for name, count in held_out.items()
        }
        every = [request for measured, _ in split.values() for request in measured]
        traffic = {name: never_measured(name, rest, every) for name, (_, rest) in split.items()}
        measured = {name: split[name][0] for name in dict.fromkeys(options.order)}
        if options.general:
            kept = [split[name][0][:of_general] for name in options.general]
            measured[GENERAL] = list(interleave(kept, options.held_out))
        general = [traffic[name] for name in options.general]
        phases = make_phases(traffic, options.order, options.requests, options.mixed)
        arrivals: tuple[tuple[float, ...], ...] = ()
        if options.trace is not None:
            phases, arrivals = along(read_trace(options.trace), phases, options.speed)
        sent = interleave(general, options.general_requests) if general else ()
        return cls(sent, phases, measured, arrivals)

    def pieces(self, phase: int, options: AdaptOptions) -> list[Piece]:
        """Of the phase of that number, in order."""
        arrivals = self.arrivals[phase] if self.arrivals else ()
        return cut(self.phases[phase], options.piece, options.concurrency, arrivals)

    def digest(self) -> str:
        """Of every request in its place: the same for the same traffic and the same held-out prompts."""
        parts = asdict(self)
        if not self.arrivals:
            del parts["arrivals"]  # a run that is older than they are knows of none
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def requests(self, options: AdaptOptions) -> int:
        """To be sent in all; fewer where a domain's own draft is the final one."""
        contestants = 3 + options.plain + options.with_policy
        measured = sum(map(len, self.measured.values())) * options.rounds * contestants * len(options.measure_at)
        return len(self.general) + len(options.arms) * sum(len(phase.requests) for phase in self.phases) + measured
