"""What `tide simulate` prints, as text and as JSON; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from tide_cli.cli.output import table_lines
from tide_cli.printable import many
from tide_cli.simulation.compare import Answers, Question, Simulated, promised
from tide_cli.simulation.loop import Run

_LATE = 0.75  # the last quarter tells what a run has come to
_SHOWN = 120  # points of a run in JSON, at most
_HEADER = (
    *("", "serves", "trains", "round ms", "first tok/s", "late tok/s", "length", "steps", "latency s", "first draft"),
    "pays",
)


def simulated_as_dict(question: Question, answers: Answers) -> dict[str, Any]:
    """What `tide simulate --json` prints. Times in seconds, sizes in bytes."""
    return {
        "target": question.division.name,
        "duration": answers.splits[0].run.seconds,
        "assumed": vars(question.learnable) | {"domains": question.domains, "shift": _finite(question.shift)},
        "splits": [_split_as_dict(question, answers, one) for one in answers.splits],
        "best": answers.best,
        "spool": {
            "size": answers.spool_size,
            "enough": answers.enough,
            "sizes": [vars(one) for one in answers.spool],
        },
        "written": vars(answers.written) if answers.written else None,
    }


def simulated_text(question: Question, answers: Answers, *, events: bool) -> str:
    """The splits, what follows from them, the spool; events: every decision of the planner's split."""
    first = answers.splits[0].run
    lines = table_lines(_HEADER, [_row(question, answers, place) for place in range(len(answers.splits))])
    lines += ["", *_conclusions(question, answers), ""]
    lines += table_lines(
        ("spool", "tokens", "samples", "oldest", "triggers", ""),
        [
            (
                f"{one.size / 2**30:.2f} GiB",
                f"{one.tokens:,.0f}",
                f"{one.samples:,.0f}",
                words(one.oldest),
                f"{one.triggers:,.1f}",
                "enough" if one.enough else "too small",
            )
            for one in answers.spool
        ],
    )
    if answers.enough is not None:
        lines.append(f"{answers.enough / 2**30:.2f} GiB are enough for what a cycle trains on and is judged by")
    if answers.written is not None:
        verdict = "hold" if answers.written.agrees else "DO NOT hold"
        lines.append(f"{answers.written.bytes / 2**30:.2f} GiB were written; the files {verdict} what was counted")
    if events:
        lines += ["", *(f"{words(one.at):>8}  {one.kind}: {one.text}" for one in first.events)]
    return "\n".join(lines)


def words(seconds: float | None) -> str | None:
    """A time for people."""
    if seconds is None or seconds == float("inf"):
        return None
    for name, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {name}"
    return f"{seconds:.0f} s"


def _row(question: Question, answers: Answers, place: int) -> Sequence[object]:
    one = answers.splits[place]
    run, steps = one.run, _late_steps(one.run)
    marks = (("planned", one.split.planned), ("best", place == answers.best))
    return (
        ", ".join(word for word, holds in marks if holds),
        one.split.serves,
        one.split.trains,
        f"{one.split.machine.round_seconds(question.batch, 0, question.context) * 1e3:.2f}",
        f"{_early_rate(answers, run):.0f}",
        f"{_late_rate(run):.0f}",
        None if (length := _late_length(run)) is None else f"{length:.2f}",
        steps,
        None if run.latency is None else f"{run.latency:.2f}",
        words(run.swaps[0][0]) if run.swaps else None,
        pays(one),
    )


def _conclusions(question: Question, answers: Answers) -> Iterator[str]:
    chosen = answers.splits[answers.best]
    name = f"{chosen.split.serves} serves, {chosen.split.trains or 'nothing'} trains"
    measure = "serves most" if question.closed else "lets clients wait least"
    how = "as planned" if chosen.split.planned else f"with `{shlex.join(chosen.split.options)}`"
    yield f"of these, {measure}: {name}, {how}"
    for one in answers.splits:
        if one.payback is None or one.split.trainer is None:
            continue
        speed = _training_rate(question, one) or 0.0
        busy = one.run.busy_seconds / one.run.seconds
        yield (
            f"{one.split.trains} trains {speed:,.0f} tokens/s and is busy {busy:.0%} of the time;"
            f" {many(len(one.run.swaps), 'draft')} deployed, {many(len(one.run.finished), 'request')} answered"
        )
        if one.payback.deficit:
            unit = "output tokens" if one.payback.unit == "tokens" else "seconds of waiting"
            yield f"  it is behind the best split without training by {one.payback.deficit:,.0f} {unit} at most"


def pays(one: Simulated) -> str | None:
    """When training has paid, in words; None where nothing is trained."""
    payback = one.payback
    if payback is None:
        return None
    if payback.at is None:
        return "not within the run" if payback.projected is None else f"after {words(payback.projected)} (projected)"
    if not one.run.swaps:
        return "no draft yet"
    if payback.gain <= 0:
        return "nothing gained"
    # never behind: there was no loss to make good
    since = f"after {words(payback.at)}, {payback.tokens or 0:,.0f} tokens" if payback.at else "from its first draft"
    return since if payback.late_gain >= 0 else f"{since}; loses in the last quarter"


def _split_as_dict(question: Question, answers: Answers, one: Simulated) -> dict[str, Any]:
    run, machine = one.run, one.split.machine
    steps = range(question.settings.draft_steps + 1 if question.settings.speculates else 1)
    return {
        "serve": {"gpus": list(one.split.plan.serve.gpus), "cores": list(one.split.plan.serve.cores)},
        "train": None if one.split.plan.train is None else {"gpus": list(one.split.plan.train.gpus)},
        "trainer": one.split.kind,
        "planned": one.split.planned,
        "options": list(one.split.options),
        "round_seconds": [machine.round_seconds(question.batch, step, question.context) for step in steps],
        "promised_tok_s": [
            promised(machine, question, length) for length in (question.learnable.first, question.learnable.reachable)
        ],
        "training_tok_s": _training_rate(question, one),
        "busy_share": run.busy_seconds / run.seconds,
        "output_tok_s": run.rate(),
        "early_tok_s": _early_rate(answers, run),
        "late_tok_s": _late_rate(run),
        "late_acceptance_length": _late_length(run),
        "latency": run.latency,
        "requests": {
            "arrived": run.arrived,
            "refused": run.refused,
            "ended": run.ended,
            "in_system": run.in_system,
        },
        "swaps": [{"at": at, "version": version} for at, version in run.swaps],
        "payback": vars(one.payback) if one.payback else None,
        "points": [vars(point) for point in run.points[:: max(1, len(run.points) // _SHOWN)]],
        "events": [vars(event) for event in run.events],
    }


def _training_rate(question: Question, one: Simulated) -> float | None:
    """Tokens/s while it trains."""
    if one.split.trainer is None:
        return None
    asked, answered = question.load.mean_lengths
    rate = one.split.trainer.tokens_per_second(question.settings.batch_tokens, answered / (asked + answered))
    return rate * one.split.share_left


def _late_rate(run: Run) -> float:
    return run.rate(_LATE * run.seconds)


def _late_length(run: Run) -> float | None:
    return run.length(_LATE * run.seconds)


def _early_rate(answers: Answers, run: Run) -> float:
    """Until any split serves its first new draft, or of the whole run: the same time for all, to be compared."""
    until = min((one.run.swaps[0][0] for one in answers.splits if one.run.swaps), default=run.seconds)
    last = [point for point in run.points if point.at <= until][-1]
    return last.tokens / last.at if last.at else 0.0


def _late_steps(run: Run) -> str:
    late = [point.steps for point in run.points if point.at >= _LATE * run.seconds]
    return "-".join(map(str, sorted({min(late), max(late)})))


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
