"""The command line: lists the commands, and says in one line what went wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer
from typer.main import get_command

from tokencover.cli import (
    ablate,
    ask,
    bench,
    calibrate,
    evaluate,
    judge,
    methods,
    models,
    report,
    serve,
    studio,
)
from tokencover.cli.stopping import INTERRUPTED, StopKey, tell_stopped
from tokencover.errors import InputError, TokenCoverError, TokenCoverWarning

LOOK: Final = "Look"
SERVE: Final = "Serve"
MEASURE: Final = "Measure"
EARLIER_NAMES: Final = {"data": "tasks"}
"""Options that had another name once, without dashes; it is still taken, and not listed."""
FAILED: Final = 1
WRONG_USAGE: Final = 2
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns the exit code: 2 if it was called wrongly, 1 if it failed, 130 if it was stopped.
    """
    _replace_closed_streams()
    with StopKey() as key:
        try:
            code = _run_telling_notes(arguments)
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError:  # who reads the output, `head` for example, has seen enough
            sys.stdout, code = _open_nowhere(), FAILED
        except Exception as error:
            code = WRONG_USAGE if isinstance(error, InputError) else FAILED
            if not key.pressed:
                if not isinstance(error, TokenCoverError | OSError):
                    raise
                with contextlib.suppress(OSError):  # a full disk below standard error, too
                    print(f"tokencover: {_describe(error)}", file=sys.stderr)
        if code and key.pressed:
            code = INTERRUPTED
    if code == INTERRUPTED:
        tell_stopped()
    return code


def _replace_closed_streams() -> None:
    """Write to nowhere instead of to streams that a shell has closed, as by ``>&-``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, _open_nowhere())


def _open_nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _describe(error: Exception) -> str:
    """The message, also for a full disk below standard output: all other files are named."""
    if isinstance(error, OSError) and error.filename is None and error.errno in DISK_FULL:
        sys.stdout = _open_nowhere()  # Python would try once more at its end
        return f"standard output cannot be written: {error.strerror}."
    return str(error)


def _run_telling_notes(arguments: Sequence[str] | None) -> int:
    with warnings.catch_warnings():
        warnings.showwarning = _show_note
        warnings.simplefilter("always", TokenCoverWarning)
        # Pillow warns where we refuse.
        warnings.filterwarnings("ignore", "Image size .* exceeds limit")
        return run(arguments)


def _show_note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Say what is for the user in a line; other warnings look as always."""
    if issubclass(category, TokenCoverWarning):
        print(f"tokencover: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=sys.stderr)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and let its errors through; returns the exit code."""
    app = make_app(drawn=sys.stdout.isatty() and sys.stderr.isatty())
    given = None if arguments is None else list(arguments)
    try:
        get_command(app).main(args=given, prog_name="tokencover")
    except SystemExit as end:  # how typer ends every command, also a successful one
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def make_app(*, drawn: bool) -> typer.Typer:
    """List the commands.

    Parameters
    ----------
    drawn : bool
        Whether help has colours and frames, for a terminal; else it is plain text.
    """
    app = typer.Typer(
        add_completion=False,
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if drawn else None,
        context_settings={
            "help_option_names": ["--help", "-h"],
            "token_normalize_func": lambda name: EARLIER_NAMES.get(name, name),
        },
    )
    app.callback()(describe_program)
    app.command("ask", rich_help_panel=LOOK)(ask.ask)
    app.command("studio", rich_help_panel=LOOK)(studio.open_page)
    app.command("methods", rich_help_panel=LOOK)(methods.list_methods)
    app.command("models", rich_help_panel=LOOK)(models.list_models)
    app.command("evaluate", rich_help_panel=MEASURE)(evaluate.compare_methods)
    app.command("judge", rich_help_panel=MEASURE)(judge.judge_answers)
    app.command("report", rich_help_panel=MEASURE)(report.write_report)
    app.command("ablate", rich_help_panel=MEASURE)(ablate.try_settings)
    app.command("calibrate", rich_help_panel=MEASURE)(calibrate.measure_coupling)
    app.command("bench", rich_help_panel=MEASURE)(bench.run_bench)
    app.command("serve", rich_help_panel=SERVE, context_settings=serve.PASS_ON)(serve.serve_model)
    return app


def print_version(asked: bool) -> None:
    """Print the version and end, if that was asked for."""
    if asked:
        from tokencover import __version__

        print(__version__)
        raise typer.Exit


def describe_program(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version.",
            is_eager=True,
            callback=print_version,
        ),
    ] = False,
) -> None:
    """Make vision-language models faster: keep only the visual tokens that matter."""
