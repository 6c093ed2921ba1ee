"""A report as one HTML file that needs nothing else: no network, no script; light or dark as the reader's system is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tide_cli.bench.report import busy_warning
from tide_cli.errors import TideError, UsageError, reason
from tide_cli.printable import many

NO_PLOTS = "The plots are left out: matplotlib is not installed (.venv/bin/pip install --group bench)."

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #c8ced6; --soft: #f3f5f7; --bad: #b3261e;
  --series-0: #6b7785; --series-1: #d08a1d; --series-2: #1f7a4d; --series-3: #2b62b8; --series-4: #8a4fb0;
  --series-5: #b8476b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ec; --paper: #14181d; --line: #46505c; --soft: #1f252c;
  --bad: #ff8a80; --series-0: #97a3b1; --series-1: #e5a84b; --series-2: #4fb583; --series-3: #6f9fe8;
  --series-4: #bd8fe0; --series-5: #e58aa8; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; } p, li { max-width: 45rem; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } figcaption { font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { background: var(--soft); }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.bad { color: var(--bad); font-weight: 600; }
"""


def page(title: str, lead: str, sections: Iterable[str]) -> str:
    """The whole file. lead: one paragraph under the title; sections: from the functions below."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1><p>{escape(lead)}</p>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(heading: str, *parts: str) -> str:
    return f"<h2>{escape(heading)}</h2>\n" + "\n".join(parts)


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def items(texts: Iterable[str], *, bad: bool = False) -> str:
    mark = ' class="bad"' if bad else ""
    entries = "".join(f"<li{mark}>{escape(text)}</li>" for text in texts)
    return f"<ul>{entries}</ul>" if entries else ""


def guards(findings: Sequence[Mapping[str, Any]]) -> str:
    """How many were met, and the words of the others; nothing where there were none."""
    if not findings:
        return ""
    failed = [finding["words"] for finding in findings if not finding["met"]]
    kept = paragraph(f"{len(findings) - len(failed)} of {len(findings)} guards are met.")
    return kept + (items(failed, bad=True) if failed else "")


def plot(svg: str | None, caption: str) -> str:
    """Nothing where there is no plot."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, kind: str = "") -> str:
    """kind: `facts` for names and texts instead of figures."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table class="{kind}">'
        + (f"<thead><tr>{head}</tr></thead>" if header else "")
        + f"<tbody>{body}</tbody></table></div>"
    )


def conditions(environment: dict[str, Any], plan: dict[str, Any]) -> str:
    """What the figures were taken under."""
    load = " ".join(f"{value:.1f}" for value in environment["load"])
    if warning := busy_warning(environment):
        load += f"; {warning}"
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items() if version)
    rows: list[tuple[str, object]] = [
        ("measured", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(environment["time"]))),
        ("TIDE", environment["tide"]),
        ("versions", f"Python {environment['python']}, {packages}"),
        (
            "machine",
            f"{environment['cpu']}, {many(environment['cores'], 'core')}, {environment['memory'] / 2**30:.0f} GiB",
        ),
        ("GPUs", ", ".join(gpu["name"] for gpu in environment["gpus"]) or "none"),
        ("system", environment["system"]),
        ("load before (1, 5, 15 minutes)", load),
        *plan.items(),
    ]
    return table((), rows, kind="facts")


def check_page(path: Path) -> None:
    """UsageError where no page can be written; nothing is changed. A measurement is too long to find out after it."""
    place = path.resolve()  # of a link that leads nowhere yet, what it names is made and removed
    try:
        existed = place.exists()
        place.open("ab").close()
        if not existed:
            place.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {path}", why=reason(error)) from None


def write_page(path: Path, text: str, remedy: str | None) -> None:
    """TideError with `remedy` where that cannot be."""
    try:
        path.write_bytes(text.encode(errors="backslashreplace"))  # a domain's name may hold half a character
    except OSError as error:
        raise TideError(f"cannot write {path}", why=reason(error), remedy=remedy) from None
