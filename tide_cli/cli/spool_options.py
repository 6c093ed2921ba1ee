"""Which samples a command of `tide spool` is about, and how it prints them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tide_cli.printable import many

if TYPE_CHECKING:
    from tide_cli.spool.samples import SampleInfo

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """'90s', '30m', '2h', '7d' or '1w' -> seconds. typer.BadParameter on anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower(), re.ASCII)
    if not match:
        raise typer.BadParameter(f"{text!r} is not an age; write for example 30m, 2h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def _parse_draft(text: str) -> int:
    from tide_cli.drafts.manifest import parse_version

    return parse_version(text)


def _parse_label(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is no text, and no client gave such a label") from None
    return text


SplitOption = Annotated[
    Literal["train", "held_out"] | None,
    typer.Option("--split", help="Only samples for training, or only held-out ones.", show_default=False),
]
Since = Annotated[
    float | None,
    typer.Option("--since", parser=parse_age, metavar="AGE", help="Only samples not older than this, e.g. 2h or 7d."),
]
Draft = Annotated[
    int | None,
    typer.Option("--draft", parser=_parse_draft, metavar="VERSION", help="Only samples served with this draft."),
]
Domain = Annotated[
    str | None,
    typer.Option(
        "--domain", parser=_parse_label, metavar="LABEL", help="Only samples that their client gave this label."
    ),
]
MinTokens = Annotated[
    int, typer.Option("--min-tokens", min=0, max=2**31, help="Only samples of at least so many tokens.")
]


def filters(
    split: SplitOption = None,
    since: Since = None,
    draft: Draft = None,
    domain: Domain = None,
    min_tokens: MinTokens = 0,
) -> dict[str, Any]:
    """What `SpoolReader.samples` is to be asked for; since: seconds ago. A command takes these by `with_options_of`."""
    return {
        "split": split,
        "created_since": None if since is None else time.time() - since,
        "draft_versions": None if draft is None else [draft],
        "domain": domain,
        "min_tokens": min_tokens,
    }


def as_row(info: SampleInfo) -> dict[str, Any]:
    """A sample's figures for JSON; acceptance_length: completion tokens per verify step, the bonus token included."""
    from dataclasses import asdict

    figures = asdict(info)
    del figures["generations"]
    return figures | {
        "generated": info.generated,
        "acceptance_length": 1 + info.accepted / info.verify_steps if info.verify_steps else None,
        "pages": len(info.pages),
        "domain": info.domain or None,
    }


def lag_words(index_only: int) -> list[str]:
    """Of samples that the index names and the ring has given up, though nobody writes."""
    return [f"left out: {many(index_only, 'sample')} that only the index still names", "`tide spool verify` says why"]


def when(unix: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
