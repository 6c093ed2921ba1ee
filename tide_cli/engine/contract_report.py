"""Does an SGLang have what TIDE relies on? Read from its source, without importing it: for `tide doctor --engine`.

Beside the tables in hook_points and contracts it checks what TIDE's own code says by itself: what engine/ imports from
SGLang, the arguments it is started with, the metrics that are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tide_cli.engine import hook_points
from tide_cli.engine.contracts import CONTRACTS, Contract
from tide_cli.engine.passthrough import REFUSED_NAMES
from tide_cli.engine.sglang_source import SglangSource, parsed, string_constants
from tide_cli.errors import TideError
from tide_cli.targets.known import known_targets

_TIDE = Path(__file__).parents[1]
_METRIC = re.compile(r"sglang:[a-z0-9_]+")
_ARGUMENT = re.compile(r"--[a-z][a-z0-9-]+")
_ARGPARSE = ("--help", "-h")  # no arguments of SGLang's own


@dataclass(frozen=True)
class Finding:
    """topic: of the contract; what: its name; where: in SGLang; purpose: what relies on it; moved: None, or how."""

    topic: str
    what: str
    where: str
    purpose: str
    moved: str | None


def report(source: SglangSource) -> list[Finding]:
    """One finding for each contract, in the order of the topics."""
    return [*_hooks(source), *_listed(source), *_imports(source), *_arguments(source), *_metrics(source)]


def _hooks(source: SglangSource) -> Iterator[Finding]:
    for point in hook_points.REQUESTS + hook_points.SPECULATION + hook_points.CPU:
        try:
            moved = "".join(hook_points.problems([point], source.resolve)).removesuffix(f"; needed for {point.purpose}")
        except TideError as error:
            moved = error.lines()[0]
        yield Finding("hooks", _short(point.target), point.target, point.purpose, moved or None)


def _listed(source: SglangSource) -> Iterator[Finding]:
    for topic, contracts in CONTRACTS.items():
        for contract in contracts:
            moved = _moved(source, contract)
            yield Finding(topic, _short(contract.where), contract.where, contract.purpose, moved)


def _imports(source: SglangSource) -> Iterator[Finding]:
    for name, users in sorted(_imported_names().items()):
        moved = _moved(source, Contract(name, ""))
        yield Finding("imports", _short(name), name, ", ".join(sorted(users)), moved)


def _arguments(source: SglangSource) -> Iterator[Finding]:
    where = "sglang.srt.server_args"
    known, unread = _readable(_server_arguments(source))
    for argument in sorted(
        {word for word in string_constants(_TIDE / "engine/launch.py") if _ARGUMENT.fullmatch(word)}
    ):
        yield _argument(argument, where, "TIDE starts the engine with it", argument in known, unread)
    for target in known_targets().values():
        for argument in filter(_ARGUMENT.fullmatch, target.sglang_arguments):
            yield _argument(argument, where, f"the target {target.name} is served with it", argument in known, unread)
    for argument in REFUSED_NAMES:
        if argument in _ARGPARSE:
            continue
        begins = argument.removesuffix("*")
        there = argument in known if begins == argument else _begins_one(begins.replace("--no-", "--"), known)
        yield _argument(argument, where, "refused behind `tide up --`", there, unread)


def _begins_one(begins: str, names: set[str]) -> bool:
    return any(name.startswith(begins) for name in names)


def _argument(name: str, where: str, purpose: str, there: bool, unread: str) -> Finding:
    return Finding("arguments", name, where, purpose, None if there else f"SGLang has no argument {name}{unread}")


def _readable(files: Iterable[Iterable[str]]) -> tuple[set[str], str]:
    """What the files say, and what of them cannot be read."""
    found, unread = set[str](), ""
    for strings in files:
        try:
            found.update(strings)
        except TideError as error:
            unread = f" ({error.lines()[0]})"
    return found, unread


def _metrics(source: SglangSource) -> Iterator[Finding]:
    where = "sglang.srt.observability.metrics_collector"
    exported, unread = _readable([source.strings(where)])
    used: dict[str, set[str]] = {}
    for folder in ("telemetry", "bench"):
        for file in sorted((_TIDE / folder).glob("*.py")):
            for name in filter(_METRIC.fullmatch, string_constants(file)):
                used.setdefault(name, set()).add(f"{folder}/{file.name}")
    for name, users in sorted(used.items()):
        moved = None if name in exported else f"SGLang exports no {name}{unread}"
        yield Finding("metrics", name, where, ", ".join(sorted(users)), moved)


def _moved(source: SglangSource, contract: Contract) -> str | None:
    """What is not as the contract says; None where all is."""
    try:
        if contract.has and (gone := set(contract.has) - source.attributes(contract.where)):
            return f"{contract.where} has no {', '.join(sorted(gone))}"
        text = source.text(contract.where) if contract.says else str(source.find(contract.where))
    except AttributeError as error:
        return f"{contract.where} is missing ({error})"
    except TideError as error:
        return error.lines()[0]
    at = 0
    for said in contract.says:
        found = text.find(said, at)
        if found < 0:
            order = ", or not in this order" if said in text else ""
            return f"{contract.where} no longer says `{said}`{order}"
        at = found + len(said)
    return None


def _imported_names() -> dict[str, set[str]]:
    """Dotted name in SGLang -> files of engine/ that import it."""
    found: dict[str, set[str]] = {}
    for file in sorted((_TIDE / "engine").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sglang":
                for alias in node.names:
                    found.setdefault(f"{node.module}.{alias.name}", set()).add(str(file.relative_to(_TIDE)))
    return found


def _server_arguments(source: SglangSource) -> Iterator[Iterable[str]]:
    """Of each file: fields of SGLang's server arguments as their flags, and every flag written out beside them."""
    yield filter(_ARGUMENT.fullmatch, source.strings("sglang.srt.server_args"))
    for file in sorted((source.package / "srt/arg_groups/fields").glob("*.py")):
        yield filter(_ARGUMENT.fullmatch, source.strings(f"sglang.srt.arg_groups.fields.{file.stem}"))
        yield ("--" + name.replace("_", "-") for name in _fields(file))


def _fields(file: Path) -> Iterator[str]:
    for node in ast.walk(parsed(file.resolve())):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if "no_cli=True" not in ast.unparse(node.annotation):
                yield name


def _short(name: str) -> str:
    """`Class.method`, or the last part of a dotted name."""
    return ".".join(name.split(".")[-2:]) if name.split(".")[-2][:1].isupper() else name.rpartition(".")[2]
