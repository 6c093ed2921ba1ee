"""Commands that look into the spool: stat, ls, show, verify. The ones that change it are in spool_change.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.app import app, command_group
from tide_cli.cli.output import complain, print_json, print_table, words_of
from tide_cli.cli.signatures import with_options_of
from tide_cli.cli.spool_options import as_row, filters, lag_words, when
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths, settings_for
from tide_cli.errors import TideError
from tide_cli.paths import Paths
from tide_cli.printable import many, printable_lines, size_words

if TYPE_CHECKING:
    from tide_cli.spool.reader import SpoolReader
    from tide_cli.spool.samples import SampleInfo

spool_app = command_group("The stored samples.")
app.add_typer(spool_app, name="spool")

_COLUMNS = (
    *("id", "created", "split", "draft", "tokens", "prompt", "generated", "missing", "trained", "acceptance", "domain"),
)


@spool_app.command("stat")
def stat(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Size, fill, and what it holds.

    Samples and tokens by split, draft and domain, ages, and what was dropped.
    """
    from tide_cli.dashboard.words import duration
    from tide_cli.spool.figures import take_figures

    figures = take_figures(appliance_paths(state_dir, config).spool, time.time())
    if json:
        print_json(asdict(figures))
        return

    def held(part: dict[str, Any]) -> str:
        return f"{many(part['samples'], 'sample')}, {many(part['tokens'], 'token')}"

    counted = dict(figures.stored)
    samples, own, reused = (counted.pop(name, 0) for name in ("samples", "tokens", "reused_tokens"))
    stored = f"{many(samples, 'sample')}, {many(own + reused, 'token')}"
    rows = [
        ("folder", figures.folder),
        ("target", f"{figures.target}, hidden size {figures.hidden_size}"),
        ("layout", f"format {figures.format}, {figures.page_tokens} tokens a page, {figures.row_bytes} bytes a token"),
        ("size", f"{size_words(figures.size_bytes)}, {many(figures.pages, 'page')}"),
        ("fill", f"{100 * figures.fill:.1f} %, {many(figures.pages_used, 'page')}"),
        ("holds", f"{held(asdict(figures))}, {figures.generated:,} of them generated"),
        *((name.replace("_", "-"), held(part)) for name, part in figures.by_split.items()),
        *((f"draft {name}", held(part)) for name, part in figures.by_draft.items()),
        *((f"domain {name}", held(part)) for name, part in figures.by_domain.items() if name),
        *((f"{name} sample", f"{duration(max(0, age))} old") for name, age in (figures.age or {}).items()),
        ("stored so far", stored + (f", {reused:,} of them reused" if reused else "")),
        *((f"so far, {name.replace('_', ' ')}", f"{number:,}") for name, number in counted.items()),
        *((f"dropped, {cause.replace('_', ' ')}", many(n, "request")) for cause, n in figures.dropped.items()),
        ("reservoir", f"{many(figures.reservoir['samples'], 'sample')}, {size_words(figures.reservoir['bytes'])}"),
    ]
    print_table(("what", "figures"), rows)
    if figures.index_only:
        complain(lag_words(figures.index_only))


@spool_app.command("ls")
@with_options_of(filters)
def ls(
    newest: Annotated[int, typer.Option("--newest", "-n", min=1, help="At most so many, the newest.")] = 50,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
    **chosen: Any,
) -> None:
    """List samples, the newest first."""
    from tide_cli.spool.folder import is_written
    from tide_cli.spool.reader import SpoolReader

    with closing(SpoolReader.open(appliance_paths(state_dir, config).spool)) as reader:
        listed = reader.samples(**filters(**chosen))
        found = reader.held(listed)
        index_only = 0 if is_written(reader.folder) else len(listed) - len(found)
    rows = [as_row(info) for info in found[:newest]]
    if json:
        print_json(rows)
    elif rows:
        print_table(_COLUMNS, [_cells(row) for row in rows])
    else:
        print("no such samples" if filters(**chosen) != filters() else "no samples")
    if len(found) > newest:
        complain([f"{newest} of {many(len(found), 'sample')}; --newest shows more"])
    if index_only:
        complain(lag_words(index_only))


def _cells(row: dict[str, Any]) -> list[Any]:
    length = row["acceptance_length"]
    return [
        row["id"],
        when(row["created"]),
        row["split"],
        f"v{row['draft_version']:04d}",
        row["tokens"],
        row["prompt_tokens"],
        row["generated"],
        row["prefix_missing"],
        row["times_trained"],
        None if length is None else f"{length:.2f}",
        row["domain"],
    ]


@spool_app.command("show")
def show(
    sample: Annotated[int, typer.Argument(metavar="ID", min=0, max=2**62, help="As `tide spool ls` gives it.")],
    text: Annotated[bool, typer.Option("--text", help="Also print the prompt and the answer.")] = False,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Whose tokenizer reads the text; needed for a target TIDE does not find."),
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """The figures of one sample; its text only with --text."""
    from tide_cli.spool.reader import SpoolReader

    paths = appliance_paths(state_dir, config)
    with closing(SpoolReader.open(paths.spool)) as reader:
        infos = [info for info in reader.held(reader.samples(since_id=sample - 1, oldest=1)) if info.id == sample]
        if not infos:
            raise TideError(f"there is no sample {sample}", remedy="`tide spool ls` lists what there is")
        row = as_row(infos[0])
        if text:
            row |= _text(settings_for(state_dir, config).paths, reader, infos[0], target)
    if json:
        print_json(row)
        return
    words = row | {"created": when(row["created"]), "draft_version": f"v{row['draft_version']:04d}"}
    if words["acceptance_length"] is not None:
        words["acceptance_length"] = f"{words['acceptance_length']:.2f}"
    parts = {name: words.pop(name) for name in ("prompt", "answer") if name in words}
    print_table(("what", "figures"), [(words_of(name), value) for name, value in words.items()])
    for name, part in parts.items():
        print(f"\n--- {name}\n{printable_lines(part)}")


def _text(paths: Paths, reader: SpoolReader, info: SampleInfo, wanted: str | None) -> dict[str, str]:
    from tide_cli.spool.folder import unusable
    from tide_cli.targets.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(wanted or _target(paths, reader.layout.target), paths)
    try:
        sample = reader.read(info)
    except OSError as error:  # the ring was cut short or deleted meanwhile
        raise unusable(reader.folder, error) from None
    if sample is None:
        why = "its checksum is wrong" if reader.damaged else "newer ones have taken its place"
        raise TideError(f"sample {info.id} cannot be read", why=why)
    ids, prompt = sample.tokens.tolist(), max(0, info.prompt_tokens - info.prefix_missing)
    return {
        "prompt": tokenizer.decode(ids[:prompt], skip_special_tokens=False),
        "answer": tokenizer.decode(ids[prompt:], skip_special_tokens=False),
    }


def _target(paths: Paths, name: str) -> str:
    """The checkpoint folder that the appliance's trainer was told, where it is that target's; else the name."""
    from tide_cli.regular_files import check_regular
    from tide_cli.training.config import TrainingConfig

    try:
        check_regular(file := paths.run / "training.json")
        config = TrainingConfig.from_json(file.read_text())
    except (OSError, ValueError, TypeError, AttributeError, TideError):  # the name will do
        return name
    return str(config.target) if config.target_name == name else name


@spool_app.command("verify")
def verify(state_dir: StateDir = None, config: Config = None, json: Json = False) -> int:
    """Read every sample against its checksum.

    Exit code 1 if one is damaged, or if the index is not right. One that lags behind the ring because its writer was
    killed is mended by the next `tide up`, and no damage.
    """
    from tide_cli.cli.progress import progress
    from tide_cli.spool.upkeep import verify as read_all

    with progress("reading samples") as tick:
        found = read_all(appliance_paths(state_dir, config).spool, tick)
    if json:
        print_json(asdict(found))
    else:
        counts = f"{len(found.damaged)} damaged, {found.overwritten} overwritten meanwhile"
        print(f"{many(found.good, 'sample')} good, {counts}")
        if found.kept or found.kept_damaged:
            print(f"kept for replay: {many(found.kept, 'sample')} good, {len(found.kept_damaged)} damaged")
    if found.malformed:
        complain([f"{many(found.malformed, 'row')} of the index make no sense", "`tide spool repair` rebuilds it"])
    if found.unsettled:
        words = f"the index lags behind the ring by {many(found.unsettled, 'sample')}: the writer was killed"
        complain([words, "nothing is lost, and the next `tide up` mends it"])
    if found.astray:
        words = f"ring and index say different things of {many(found.astray, 'sample')}, though nobody writes"
        complain([words, "`tide spool repair` keeps what is whole in the ring"])
    if found.damaged:
        complain([f"damaged: {_some(found.damaged)}", "they are never trained on; `tide spool repair` removes them"])
    if found.kept_damaged:
        names = f"damaged in the reservoir: {_some(found.kept_damaged)}"
        complain([names, "`tide spool repair` removes them"])
    return int(bool(found.damaged or found.malformed or found.astray or found.kept_damaged))


def _some(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:10])) + (", …" if len(names) > 10 else "")
