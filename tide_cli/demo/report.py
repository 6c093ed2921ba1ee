"""The result of a demo: a table for people, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from tide_cli.demo.measure import Measurement


@dataclass(frozen=True)
class DemoResult:
    """versions: in the order they were served in; before: the first one's figures; after: the last one's, if another.

    captured_tokens: tokens whose hidden states were stored; seconds: the whole demo, the engine's start included;
    last_gate: why the last candidate was or was not deployed, in words.
    """

    versions: tuple[int, ...]
    before: Measurement
    after: Measurement | None
    captured_tokens: int
    seconds: float
    last_gate: str | None

    @property
    def improved(self) -> bool:
        return self.after is not None and self.after.acceptance_length > self.before.acceptance_length


def as_json(result: DemoResult) -> str:
    """One line. `after` is null where no draft was deployed."""
    after = None if result.after is None else _figures(result.after)
    return json.dumps(
        {
            "before": _figures(result.before),
            "after": after,
            "versions": [f"v{version:04d}" for version in result.versions],
            "captured_tokens": result.captured_tokens,
            "seconds": round(result.seconds, 1),
        }
    )


def _figures(measured: Measurement) -> dict[str, Any]:
    """kinds: acceptance length by kind of prompt, as in the table."""
    return {
        "acceptance_length": round(measured.acceptance_length, 4),
        "output_tok_s": round(measured.output_tok_s, 2),
        "kinds": {name: round(length, 4) for name, length in measured.by_domain.items()},
    }


def as_table(result: DemoResult) -> Table:
    """Old draft, new draft, change."""
    old, new = f"v{result.versions[0]:04d}", f"v{result.versions[-1]:04d}"
    table = Table("", f"before ({old})", title="The same prompts, the same load", title_justify="left")
    before, after = result.before, result.after
    if after is not None:
        table.add_column(f"after ({new})")
        table.add_column("change")

    def row(name: str, old: float, new: float | None, form: str, change: Callable[[float, float], str]) -> None:
        cells = [] if new is None else [format(new, form), change(old, new)]
        table.add_row(name, format(old, form), *cells)

    row("acceptance length", before.acceptance_length, after.acceptance_length if after else None, ".2f", _difference)
    if len(before.by_domain) > 1:
        for domain, old_length in before.by_domain.items():
            if after is None or domain in after.by_domain:
                row(f"  {domain}", old_length, after.by_domain[domain] if after else None, ".2f", _difference)
    row("output tok/s", before.output_tok_s, after.output_tok_s if after else None, ".1f", _ratio)
    return table


def _ratio(old: float, new: float) -> str:
    return f"{new / old:.2f} times"


def _difference(old: float, new: float) -> str:
    """Of the two as they are printed."""
    return f"{round(new, 2) - round(old, 2):+.2f}"


def verdict(result: DemoResult) -> str:
    """What the figures say, in a sentence or two."""
    if result.after is None:
        why = f" The last candidate: {result.last_gate}." if result.last_gate else " No training cycle has ended."
        return f"No improvement: no draft was deployed in the given time.{why}"
    gain = _difference(result.before.acceptance_length, result.after.acceptance_length)
    ratio = result.after.output_tok_s / result.before.output_tok_s
    if not result.improved:
        return f"No improvement: the deployed draft's acceptance length differs by {gain} on these prompts."
    if ratio <= 1:
        return f"Acceptance length rose by {gain.lstrip('+')}, but the output did not get faster ({ratio:.2f} times)."
    return f"Acceptance length rose by {gain.lstrip('+')}, and the output got {ratio:.2f} times as fast."
