"""Commands that write the spool or copy it: repair, export, import, erase."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tide_cli.cli.output import complain, print_json
from tide_cli.cli.progress import progress
from tide_cli.cli.setting_options import SpoolSize
from tide_cli.cli.signatures import with_options_of
from tide_cli.cli.spool import spool_app
from tide_cli.cli.spool_options import filters, lag_words, parse_age
from tide_cli.cli.where import Config, Json, StateDir, appliance_paths, outside, path_argument, settings_for
from tide_cli.errors import NotRunningError, TideError, UsageError, reason
from tide_cli.folders import taken_back
from tide_cli.paths import Paths
from tide_cli.printable import many, printable, size_words

if TYPE_CHECKING:
    from tide_cli.spool.erase import Erased, Which


@contextmanager
def _appliance_stopped(paths: Paths, command: str) -> Iterator[None]:
    """Holds the state folder, so that no appliance starts meanwhile, for `command`. TideError where one runs."""
    from tide_cli.supervisor.lock import StateLock, make_private

    with taken_back(paths.state):
        make_private(paths.state)
        lock = StateLock(paths.lock, command=command)
        try:
            yield
        finally:
            lock.release()


@spool_app.command("repair")
def repair(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Rebuild the index, and drop damaged samples.

    From the ring alone; the appliance must not run.
    """
    from tide_cli.spool.figures import read_ring
    from tide_cli.spool.upkeep import repair as rebuild

    paths = appliance_paths(state_dir, config)
    read_ring(paths.spool)  # before a state folder is made for the lock
    with _appliance_stopped(paths, "spool repair"), progress("reading samples") as tick:
        found = rebuild(paths.spool, tick)
    if json:
        print_json(asdict(found))
        return
    print(f"the index was {found.index}; {many(found.added, 'sample')} added, {found.removed} removed")
    if found.damaged:
        print(f"damaged and dropped: {', '.join(map(str, found.damaged))}")
    if found.kept_damaged:
        print(f"damaged in the reservoir and removed: {printable(', '.join(found.kept_damaged))}")
    print(f"the spool holds {many(found.samples, 'sample')}, {many(found.tokens, 'token')}")


@spool_app.command("export")
@with_options_of(filters)
def export(
    folder: Annotated[Path, path_argument("Where to; empty, or not there yet.")],
    newest: Annotated[
        int | None, typer.Option("--newest", "-n", min=1, max=2**31, help="At most so many, the newest.")
    ] = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
    **chosen: Any,
) -> None:
    """Write samples in SpecForge's offline format.

    For its trainer, or for another machine's spool.
    """
    from tide_cli.spool.export import export as write_out
    from tide_cli.spool.reader import SpoolReader

    paths = appliance_paths(state_dir, config)
    folder = outside(paths, folder)
    reader = SpoolReader.open(paths.spool)
    try:
        samples = reader.samples(newest=newest, **filters(**chosen))
        with progress("exporting samples") as tick:
            done = write_out(reader, samples, folder, tick)
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
    if done.overwritten or done.damaged or done.not_finite:
        left = f"left out: {done.overwritten} overwritten meanwhile, {done.damaged} damaged"
        complain([left + f", {done.not_finite} with values that are not finite" * bool(done.not_finite)])
    if done.index_only:
        complain(lag_words(done.index_only))
    complain(["these files hold what users asked and were answered: treat them as such"])


@spool_app.command("import")
def import_(
    folder: Annotated[Path, path_argument("What `tide spool export` wrote.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Give up the oldest samples where the spool has no free pages.")
    ] = False,
    spool_size: SpoolSize = None,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Take an export up into the spool.

    Or into a new one of --spool-size; the appliance must not run.
    """
    from tide_cli.file_locks import is_locked
    from tide_cli.spool.importing import check_export, open_spool, read_export, take_up
    from tide_cli.supervisor.lock import already_runs
    from tide_cli.supervisor.specs import spool_size as size_of
    from tide_cli.supervisor.specs import spool_size_ignored

    settings = settings_for(state_dir, config, spool_size=spool_size)
    found = read_export(folder.absolute())
    if is_locked(settings.paths.lock):  # before every file is read
        raise already_runs(settings.paths.lock)
    if words := spool_size_ignored(settings, importing=True):
        complain([words])
    with progress("checking files") as tick:
        check_export(found, tick)
    with _appliance_stopped(settings.paths, "spool import"):
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
    return int(bool(done.dropped))


@spool_app.command("erase")
def erase(
    samples: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="As `tide spool ls` gives them.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sample.")] = False,
    older_than: Annotated[
        float | None,
        typer.Option("--older-than", parser=parse_age, metavar="AGE", help="Samples older than this, e.g. 7d."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Overwrite samples with zeros.

    In the ring, its index and the reservoir; also while the appliance runs.
    """
    from tide_cli.spool.erase import Which

    if (bool(samples) + everything + (older_than is not None)) != 1:
        raise UsageError(
            "say which samples, in one way: IDs, --older-than AGE or --all", remedy="`tide spool ls` lists them"
        )
    paths = appliance_paths(state_dir, config)
    which = Which(everything, tuple(samples or ()), None if older_than is None else time.time() - older_than)
    if not yes and not _confirmed(paths, which):
        complain(["nothing was erased"])
        return 1
    done, found = _erase(paths, which)
    if which.ids and not found:
        raise TideError("there is no such sample", remedy="`tide spool ls` lists what there is")
    if missing := len(set(which.ids) - found):
        complain([f"{many(missing, 'sample')} of those named {'is' if missing == 1 else 'are'} not there"])
    if json:
        print_json(done)
        return 0
    print(
        f"{many(done['samples'], 'sample')} erased, {many(done['pages'], 'page')} ({size_words(done['bytes'])}) "
        f"overwritten; {many(done['reservoir'], 'sample')} of the reservoir"
    )
    if done["kept_shared"]:
        complain([f"shared pages kept: {done['kept_shared']}; other samples begin with the same tokens"])
    return 0


def _confirmed(paths: Paths, which: Which) -> bool:
    """Asks, with the number of samples it is about."""
    from tide_cli.spool.index import SpoolIndex

    with closing(SpoolIndex.open(paths.spool)) as index:
        infos = index.samples()
    if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed
        raise UsageError("this asks before it erases, and nobody can answer here", remedy="the same command with --yes")
    chosen = sum(which(info.id, info.created) for info in infos)
    question = f"Erase {chosen} of {many(len(infos), 'sample')}, and their copies in the reservoir, for good?"
    return typer.confirm(question, err=True)


def _erase(paths: Paths, which: Which) -> tuple[dict[str, int], set[int]]:
    """Erases in the ring, through the engine where one holds it, and in the reservoir; the figures and ids of both."""
    from contextlib import nullcontext

    from tide_cli.file_locks import is_locked
    from tide_cli.spool.erase import erase_offline
    from tide_cli.spool.figures import read_ring
    from tide_cli.spool.folder import is_written
    from tide_cli.spool.reservoir import RESERVOIR_FOLDER, erase_kept

    if is_written(paths.spool):
        erased = _ask_engine(paths, which)
    else:
        read_ring(paths.spool)  # before a state folder is made for the lock
        # an appliance that does not capture may run; else none shall start meanwhile
        with nullcontext() if is_locked(paths.lock) else _appliance_stopped(paths, "spool erase"):
            erased = erase_offline(paths.spool, which, lambda words: complain([words]))
    figures = asdict(erased)
    found = set(figures.pop("ids"))

    def chosen(sample: int, created: float) -> bool:
        if not which(sample, created):
            return False
        found.add(sample)
        return True

    try:
        figures["reservoir"] = erase_kept(paths.spool / RESERVOIR_FOLDER, chosen)
    except OSError as error:
        raise TideError(
            "the ring is erased, the reservoir is not", why=reason(error), remedy="mend that, and erase once more"
        ) from None
    return figures, found


def _ask_engine(paths: Paths, which: Which) -> Erased:
    from urllib.parse import urlsplit

    from tide_cli.engine.client import EngineClient
    from tide_cli.supervisor.control_client import ask

    try:
        address = urlsplit(ask(paths.socket, "GET", "/v1/status")["address"])
    except NotRunningError:  # another command, or an engine that has outlived its supervisor
        remedy = "try again when it is done; `tide down` ends an engine that was left behind"
        what = f"another process writes the spool in {paths.spool}, and no appliance answers for it"
        raise NotRunningError(what, remedy=remedy) from None
    client = EngineClient(str(address.hostname), int(address.port or 80))
    try:
        return client.erase(paths.spool, which)
    except KeyboardInterrupt:
        complain(["interrupted: the engine erases nevertheless"])
        raise
    finally:
        client.close()
