"""The application and its way of failing: one or two lines on stderr and an exit code, never a traceback unasked."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from tide_cli import __version__
from tide_cli.cli.output import complain, forget
from tide_cli.errors import ExitCode, TideError, reason
from tide_cli.hints import remember
from tide_cli.setting_values import parse_path


class _Command(TyperCommand):
    """A command that takes only numbers for numbers, and for paths only what can be one, with `~` replaced.

    What an argument is called stands in capitals, without the braces that look like something left unfilled.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for param in self.params:
            if param.param_type_name == "argument" and param.metavar is None:
                param.metavar = str(param.name).upper()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(str(param.name))
            if isinstance(value, float) and not math.isfinite(value):
                raise typer.BadParameter(f"{value} is not a number that can be used", ctx=ctx, param=param)
            if isinstance(value, Path):
                try:
                    ctx.params[str(param.name)] = parse_path(str(value))
                except ValueError as error:
                    raise typer.BadParameter(str(error), ctx=ctx, param=param) from None
        remember(ctx.params)
        return rest


class _App(typer.Typer):
    def command(self, name: str | None = None, **how: Any) -> Any:
        return super().command(name, **{"cls": _Command, **how})


def command_group(text: str) -> typer.Typer:
    """A group of commands, such as `tide drafts`; it must still be attached to `app`."""
    return _App(help=text, no_args_is_help=True, rich_markup_mode=None)


app = _App(
    name="tide",
    help="Serve a language model with speculative decoding whose draft learns from your own traffic.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"tide {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks instead of short messages."),
    version: bool = typer.Option(False, "--version", help="Show TIDE's version.", is_eager=True, callback=_version),
) -> None:
    """Options of every command; main() has read them already, since they may stand behind the command as well."""


# What a shell reports of a program that the end of a pipe's reader has ended: 128 + SIGPIPE.
_NO_READER = 141


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    if os.getpid() == 1:
        from tide_cli.supervisor.init import stay_as_init

        stay_as_init()
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    code = _run([argument for argument in arguments if argument != "--debug"], debug)
    lost = _close_output()
    sys.exit(code or lost or ExitCode.DONE)


def _run(arguments: list[str], debug: bool) -> int:
    remember({})
    try:
        from tide_cli.cli import register  # noqa: F401  attaches the commands

        result: Any = app(args=arguments, prog_name="tide", standalone_mode=False)
        return int(result or ExitCode.DONE)
    except TideError as error:
        if debug:
            raise
        complain(error.lines())
        return int(error.exit_code)
    except typer.Exit as stop:
        return stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        complain(["interrupted"])
        return 130
    except SystemExit:  # typer's way of ending where nobody reads the output any more
        forget(sys.stdout)
        return _NO_READER
    except Exception as error:
        if hasattr(error, "format_message"):  # the usage errors of typer's parser
            return _usage(error)
        if isinstance(error, OSError) and (lost := _close_output()):
            return lost
        if debug:
            raise
        complain(_unforeseen(error))
        return int(ExitCode.FAILED)


def _unforeseen(error: Exception) -> list[str]:
    """What nobody has put into words for its place."""
    if isinstance(error, OSError) and error.filename is not None:
        remedy = "mend that, or name another place; the same command with --debug shows what needs it"
        return [f"cannot use {os.fsdecode(error.filename)}: {reason(error)}", remedy]
    return [f"a fault in TIDE, or in what it stands on: {reason(error)}", "the same command with --debug shows where"]


# What typer says of numbers is pydantic's, which speaks to programmers.
_PHRASES = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*", "it takes a whole number"),
    (r"Input should be a valid number.*", "it takes a number"),
    (r"Input should be greater than or equal to (\S+)", r"it takes numbers from \1 on"),
    (r"Input should be less than or equal to (\S+)", r"it takes numbers up to \1"),
    (r"Input should be", "it should be"),
)


def _usage(error: Any) -> int:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: typer says it with the help itself
        with suppress(OSError):
            print(message, file=sys.stderr, flush=True)
        return int(ExitCode.USAGE)
    for pattern, words in _PHRASES:
        message = re.sub(pattern, words, message)
    if message:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tide"
        complain([message.replace("\n", " "), f"`{command} --help` explains it"])
    return int(ExitCode.USAGE)


class _Output(io.TextIOWrapper):
    """Standard output that remembers why it could not be written."""

    lost: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.lost = error
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.lost = error
            raise


def _open_streams() -> None:
    """A program may be started with its streams closed; what is written to them then is lost, and nothing else is."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  for as long as the process lives
    out = sys.stdout
    if type(out) is io.TextIOWrapper:
        how = {"encoding": out.encoding, "errors": out.errors}
        # both: the old one is of no use any more, and Textual asks sys.__stdout__ for the terminal's size
        sys.stdout = sys.__stdout__ = _Output(
            out.detach(), **how, line_buffering=out.line_buffering, write_through=out.write_through
        )


def _close_output() -> int | None:
    """The exit code of a command whose output could not be written, said on stderr; None where all of it was."""
    with suppress(OSError):
        sys.stdout.flush()
    lost = sys.stdout.lost if isinstance(sys.stdout, _Output) else None
    if lost is None:
        return None
    forget(sys.stdout)
    sys.stdout.lost = None  # it is said once
    if isinstance(lost, BrokenPipeError):
        return _NO_READER
    complain([f"the output cannot be written: {reason(lost)}"])
    return int(ExitCode.FAILED)
