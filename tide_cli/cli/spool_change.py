"""Commands that write the spool or copy it: repair, export, import, erase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tide_cli.cli.output import complain, print_json
from tide_cli.cli.progress import progress
from tide_cli.cli.spool import spool_app
from tide_cli.cli.spool_options import Draft, MinTokens, Since, SplitOption, chosen, many, size_words
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths, settings_for
from tide_cli.paths import Paths


@contextmanager
def _appliance_stopped(paths: Paths) -> Iterator[None]:
    """Holds the state folder so that no appliance starts meanwhile. TideError where one runs."""
    from tide_cli.supervisor.lock import StateLock, make_private

    make_private(paths.state)
    lock = StateLock(paths.lock)
    try:
        yield
    finally:
        lock.release()


@spool_app.command("repair")
def repair(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Rebuild the index from the ring alone, and drop damaged samples; the appliance must not run."""
    from tide_cli.spool.figures import read_ring

    paths = appliance_paths(state_dir, config)
    read_ring(paths.spool)  # before torch is imported for nothing

    from tide_cli.spool.upkeep import repair as rebuild

    with _appliance_stopped(paths), progress("reading samples") as tick:
        found = rebuild(paths.spool, tick)
    if json:
        print_json(asdict(found))
        return
    print(f"the index was {found.index}; {many(found.added, 'sample')} added, {found.removed} removed")
    if found.damaged:
        print(f"damaged and dropped: {', '.join(map(str, found.damaged))}")
    print(f"the spool holds {many(found.samples, 'sample')}, {many(found.tokens, 'token')}")


@spool_app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; empty, or not there yet.")],
    newest: Annotated[int | None, typer.Option("--newest", "-n", min=1, help="At most so many, the newest.")] = None,
    split: SplitOption = None,
    since: Since = None,
    draft: Draft = None,
    min_tokens: MinTokens = 0,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write samples in SpecForge's offline format, for its trainer or for another machine's spool."""
    from tide_cli.spool.export import export as write_out
    from tide_cli.spool.figures import reading
    from tide_cli.spool.reader import SpoolReader

    spool = appliance_paths(state_dir, config).spool
    with reading(spool) as index:
        samples = chosen(index, newest=newest, split=split, since=since, draft=draft, min_tokens=min_tokens)
    reader = SpoolReader.open(spool)
    try:
        with progress("exporting samples") as tick:
            done = write_out(reader, samples, folder.expanduser().absolute(), tick)
    except KeyboardInterrupt:
        complain(["interrupted: nothing of the export is left behind"])
        raise
    finally:
        reader.close()
    if json:
        print_json(asdict(done))
    else:
        amount = f"{many(done.samples, 'sample')}, {many(done.tokens, 'token')}, {size_words(done.size_bytes)}"
        print(f"{amount} in {done.folder}")
    if done.overwritten or done.damaged:
        complain([f"left out: {done.overwritten} overwritten meanwhile, {done.damaged} damaged"])
    complain(["these files hold what users asked and were answered: treat them as such"])


@spool_app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `tide spool export` wrote.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Give up the oldest samples where the spool has no free pages.")
    ] = False,
    spool_size: Annotated[
        str | None, typer.Option("--spool-size", help="Size of the spool, e.g. 2GiB, where there is none yet.")
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Take an export up into the spool, or into a new one; the appliance must not run."""
    from tide_cli.spool.importing import check_export, open_spool, read_export, take_up
    from tide_cli.supervisor.specs import spool_size as size_of

    settings = settings_for(state_dir, config, spool_size=spool_size)
    found = read_export(folder.expanduser().absolute())
    with _appliance_stopped(settings.paths):
        with progress("checking files") as tick:
            check_export(found, tick)
        writer, samples = open_spool(found, settings.paths.spool, size_of(settings), overwrite=overwrite)
        try:
            with progress("importing samples") as tick:
                done = take_up(writer, found, samples, tick)
        except KeyboardInterrupt:
            complain(["interrupted: what was imported so far stays; the same command goes on from there"])
            raise
        finally:
            writer.close()
    if json:
        print_json(asdict(done))
    else:
        print(f"{many(done.samples, 'sample')}, {many(done.tokens, 'token')} imported; {done.known} were already there")
    if done.dropped:
        complain([f"{many(done.dropped, 'sample')} could not be stored", "`tide spool stat` counts them by cause"])
