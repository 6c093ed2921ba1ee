"""Guards: bounds that a measurement must keep, as text such as `itl_p95<=1.05x`. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tide_cli.errors import UsageError

_SHORT = {
    "tok_s": "output_tok_s",
    "al": "acceptance_length",
    **{f"{name}_{part}": f"{name}_{part}_ms" for name in ("ttft", "itl", "e2e") for part in ("p50", "p95")},
    "itl_p99": "itl_p99_ms",
    "gap_p95": "gap_p95_ms",
}
_SHARES = ("kv_use_peak", "acceptance_rate")
_FAILURES = ("errors", "timeouts")  # figures that say themselves what failed
MATRIX_GUARDS = "'itl_p95<=1.05x', 'adapted:tok_s>=1.1x static' or 'errors<=0'"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_GUARD = re.compile(
    r"(?:(?P<mode>[\w.+-]+)\s*:)?\s*(?P<figure>\w+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>-?(?:\d+(?:\.\d*)?|\.\d+))"
    r"\s*(?P<ratio>x(?:\s*(?P<to>\w+))?)?"
)


@dataclass(frozen=True)
class Guard:
    """`[MODE:]FIGURE<=NUMBER[x [MODE]]`.

    figure: its full name; ratio: NUMBER is a multiple of the same figure of `to`, of the first mode where that is None;
    `best` is the better one of plain and adapted in each round.
    mode: whose figure it is, None for every one that it can be said of.
    """

    text: str
    figure: str
    sign: str
    bound: float
    ratio: bool
    mode: str | None = None
    to: str | None = None

    @property
    def names(self) -> set[str]:
        """What reports may call the figure: its full name, and a short one that is some reports' full one."""
        return {self.figure, *(short for short, full in _SHORT.items() if full == self.figure)}

    def holds(self, value: float) -> bool:
        return _COMPARE[self.sign](value, self.bound)

    def allows(self, errors: float) -> bool:
        """Whether it says that so many requests may fail."""
        return self.figure == "errors" and not self.ratio and self.holds(errors)


@dataclass(frozen=True)
class Finding:
    """One guard at one place. value: the figure or the ratio there, None where there is none, which is not met.

    failed: which requests the figure leaves out, where no guard of `errors` allows that; it is not met then.
    """

    guard: str
    where: str
    value: float | None
    met: bool
    failed: str | None = None

    def words(self) -> str:
        value = "there is no such figure" if self.value is None else f"{self.value:.3g}"
        if self.value is not None and math.isinf(self.value):
            value = "it was 0 before"
        verdict = "met" if self.met else "not met"
        return f"{self.guard} is {verdict} by {self.where}: {value}" + (f", and {self.failed}" if self.failed else "")


def parse_guard(text: str, such_as: str = MATRIX_GUARDS) -> Guard:
    """such_as: good ones, for the remedy. Raises UsageError; a multiple cannot be negative."""
    match = _GUARD.fullmatch(text.strip())
    if not match or (match["ratio"] and match["bound"].startswith("-")):
        raise UsageError(f"--guard {text!r} is not a guard", remedy=f"write for example {such_as}")
    figure = _SHORT.get(match["figure"], match["figure"])
    return Guard(text, figure, match["sign"], float(match["bound"]), bool(match["ratio"]), match["mode"], match["to"])


def check_guards(
    guards: Iterable[Guard], modes: Sequence[str], figures: Sequence[str], compared: Sequence[str]
) -> None:
    """Refuses guards that a measurement with these modes, figures and compared figures cannot answer. UsageError."""
    for guard in guards:
        known = compared if guard.ratio else figures
        if guard.to == "best":
            _check_best(guard, modes)
        for mode in (guard.mode, guard.to):
            if mode not in (None, "best") and mode not in modes:
                raise UsageError(f"--guard {guard.text!r}: {mode} is not measured", why=f"only {', '.join(modes)} are")
        if guard.ratio and guard.figure in figures and guard.figure not in known:
            raise UsageError(f"--guard {guard.text!r}: {guard.figure} has no ratio", remedy="bound it without an x")
        if guard.figure not in known:
            raise UsageError(
                f"--guard {guard.text!r}: there is no figure {guard.figure}",
                why=f"there are {', '.join(known)}",
            )
        if not guard.ratio and guard.figure in _SHARES and guard.bound > 1:
            raise UsageError(f"--guard {guard.text!r}: {guard.figure} is a share from 0 to 1", remedy="0.9 is 90 %")
        to = guard.to or modes[0]
        if guard.ratio and (guard.mode == to or len(modes) < 2):
            raise UsageError(f"--guard {guard.text!r} compares {to} with itself")
        if guard.figure.startswith("acceptance") and "plain" in (guard.mode, to if guard.ratio else None):
            raise UsageError(
                f"--guard {guard.text!r}: plain decoding has no {guard.figure}",
                remedy=f"name another mode: '{guard.text.split('x')[0]}x static'" if guard.ratio else None,
            )


def _check_best(guard: Guard, modes: Sequence[str]) -> None:
    """`best` is the better of plain decoding and of the adapted draft, and only the policy is held against it."""
    if not {"policy", "plain", "adapted"} <= set(modes) or guard.mode not in (None, "policy"):
        why = "only the policy is compared with the best of plain and adapted, where all three are measured"
        raise UsageError(f"--guard {guard.text!r} cannot be answered", why=why)
    if guard.figure != "output_tok_s":
        raise UsageError(f"--guard {guard.text!r} cannot be answered", why="`best` is the best by output tok/s")


def judge(
    guards: Sequence[Guard], cells: Sequence[Mapping[str, Any]], ratios: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """Every guard at every cell it speaks of; one that speaks of none is not met.

    cells: {mode, where, requests, errors, FIGURE: value}; ratios: {mode, to, where, requests, errors: {MODE: count},
    FIGURE: {median, …}}. `where` names load and mode.
    """
    first = cells[0]["mode"] if cells else None
    found = []
    for guard in guards:
        if guard.ratio:
            to = guard.to or first
            own = [
                (
                    f"{entry['where']} against {to}",
                    (entry.get(guard.figure) or {}).get("median"),
                    entry,
                    entry["errors"],
                )
                for entry in ratios
                if entry["to"] == to and _speaks_of(guard, entry["mode"])
            ]
        else:
            own = [
                (cell["where"], cell.get(guard.figure), cell, {cell["mode"]: cell["errors"]})
                for cell in cells
                if _speaks_of(guard, cell["mode"])
            ]
        for where, value, entry, errors in own:
            failed = [
                f"{count} of {entry['requests']} requests of {mode} failed"
                for mode, count in errors.items()
                if count and not any(one.allows(count) for one in guards if one.mode in (None, mode))
            ]
            found.append(finding(guard, where, value, ", ".join(failed)))
        if not own:
            found.append(finding(guard, "this measurement", None))
    return found


def finding(guard: Guard, where: str, value: float | None, failed: str = "") -> Finding:
    """failed: which requests the value leaves out though no guard allows that, in words."""
    if guard.figure in _FAILURES:
        failed = ""
    return Finding(guard.text, where, value, value is not None and guard.holds(value) and not failed, failed or None)


def _speaks_of(guard: Guard, mode: str) -> bool:
    return guard.mode in (None, mode) and not (mode == "plain" and guard.figure.startswith("acceptance"))
