"""The machines of docs/simulation.md.

`PYTHONPATH=. python tests/simulation/simulated_machines.py` prints its tables: what comes out, and where to train.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tide_cli.cli.simulate_view import pays, words
from tide_cli.hardware.examples import examples
from tide_cli.hardware.inventory_file import read_inventory
from tide_cli.paths import Paths
from tide_cli.settings import Settings
from tide_cli.simulation.compare import Answers, Question, answer
from tide_cli.simulation.options import Options, question
from tide_cli.targets import resolve_target

_OTHERS = Path(__file__).parents[1] / "hardware" / "inventories"


@dataclass(frozen=True)
class Case:
    """A row: an inventory of configs/ or of the planner's tests, a target, and what is not the default."""

    title: str
    inventory: str
    target: str = "gpt-oss-120b"
    duration: float = 900.0
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def question(self) -> Question:
        settings = Settings(target=self.target, **self.settings)
        target = resolve_target(self.target, Paths.under(Path("unused"), Path("unused")))
        file = examples().get(self.inventory, _OTHERS / f"{self.inventory}.json")
        options = Options(duration=self.duration, **self.options)
        return question(settings, target, read_inventory(file.read_text()), options)

    def row(self) -> str:
        """The line of the first table in docs/simulation.md."""
        asked = self.question()
        return "| " + " | ".join(_cells(self.title, asked, answer(asked))) + " |"

    def places(self) -> str:
        """The line of the second one."""
        return "| " + " | ".join(_places(self.title, answer(self.question()))) + " |"


CASES = (
    Case("8×H100", "8xH100"),
    Case("8×H100, 64 at a time", "8xH100", duration=240, settings={"max_running_requests": 64}),
    Case("4×MI300X + 4×MI250", "4xMI300X-4xMI250"),
    Case("2×RTX 6000 Ada", "2xRTX-6000-Ada"),
    Case("2×RTX 6000 Ada, 20b", "2xRTX-6000-Ada", "gpt-oss-20b"),
    Case("1×H200", "1xH200"),
    Case("1×H200, train_share 1", "1xH200", settings={"train_share": 1.0}),
)

# Where the trainer is, over half an hour if nothing else is said.
PLACES = (
    Case("8×H100, 120b, 90 minutes", "8xH100", duration=5400),
    Case(
        "the same, other traffic every quarter of an hour",
        "8xH100",
        duration=5400,
        options={"domains": 3, "shift": 900.0},
    ),
    Case("8×H100, 20b", "8xH100", "gpt-oss-20b", 1800),
    Case("8×H100, Qwen3-8B", "8xH100", "qwen3-8b", 1800),
    Case("8×MI300X, 120b", "mi300x-8x192", duration=1800),
    Case("2×H100, 120b", "h100-2x80", duration=1800),
    Case("2×RTX 6000 Ada, 20b", "2xRTX-6000-Ada", "gpt-oss-20b", 1800),
    Case("2×RTX 6000 Ada, Qwen3-8B", "2xRTX-6000-Ada", "qwen3-8b", 1800),
)


def _cells(title: str, asked: Question, found: Answers) -> Iterator[str]:
    planned, best = found.splits[0], found.splits[found.best]
    plain = max((one for one in found.splits if one.split.trainer is None), key=lambda one: one.run.tokens)
    late = 0.75 * planned.run.seconds
    yield title
    yield f"{planned.split.serves} serves, {planned.split.trains} trains"
    for one in (planned, plain, best):
        yield f"{one.run.rate(late):,.0f}"
    yield words(planned.run.swaps[0][0] if planned.run.swaps else None) or "-"
    yield pays(planned) or "-"
    yield "the same" if best is planned else f"{best.split.serves}, {best.split.trains or 'nothing'}"
    yield f"{(found.enough or 0) / 2**30:.0f} GiB"


def _places(title: str, found: Answers) -> Iterator[str]:
    """Output tokens/s of the whole time; the planner's own in bold type."""
    by_kind = {one.split.kind: one for one in found.splits}
    yield title
    for kind in ("own", "off", "shared", "cpu"):
        one = by_kind[kind]
        rate = f"{one.run.rate():,.0f}"
        cores = f" ({len(one.split.plan.train.cores)})" if kind == "cpu" and one.split.plan.train else ""
        yield (f"**{rate}**" if one.split.planned else rate) + cores


if __name__ == "__main__":
    for case in CASES:
        print(case.row(), flush=True)
    print()
    for case in PLACES:
        print(case.places(), flush=True)
