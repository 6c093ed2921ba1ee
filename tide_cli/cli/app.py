"""The application and its way of failing: one or two lines on stderr and an exit code, never a traceback unasked."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from tide_cli.cli.output import complain
from tide_cli.errors import ExitCode, TideError

app = typer.Typer(
    name="tide",
    help="Serve a language model with speculative decoding whose draft learns from your own traffic.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(debug: bool = typer.Option(False, "--debug", help="Show tracebacks instead of short messages.")) -> None:
    """Options of every command; main() has read them already, since they may stand behind the command as well."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with its code."""
    if os.getpid() == 1:
        from tide_cli.supervisor.init import stay_as_init

        stay_as_init()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    code = _run([argument for argument in arguments if argument != "--debug"], debug)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    sys.exit(code)


def _run(arguments: list[str], debug: bool) -> int:
    from tide_cli.cli import register  # noqa: F401  attaches the commands

    try:
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
    except BrokenPipeError:
        _forget_stdout()
        return int(ExitCode.DONE)
    except Exception as error:
        if hasattr(error, "format_message"):  # the usage errors of typer's parser
            return _usage(error)
        if debug:
            raise
        complain([f"unexpected {type(error).__name__}: {error}", "the same command with --debug shows where"])
        return int(ExitCode.FAILED)


def _usage(error: Any) -> int:
    message = error.format_message().replace("Value error, ", "")  # pydantic's prefix
    if message:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "tide"
        complain([message.replace("\n", " "), f"`{command} --help` explains it"])
    return int(ExitCode.USAGE)


def _forget_stdout() -> None:
    """The reader is gone; leave nothing that Python would try to flush into its pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
