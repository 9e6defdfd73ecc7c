"""The command line: its commands, and errors in one line."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer
from typer.core import TyperCommand
from typer.main import get_command

from tokencover.cli import (
    ablate,
    ask,
    bench,
    calibrate,
    evaluate,
    judge,
    lists,
    report,
    serve,
    studio,
)
from tokencover.cli.options import option
from tokencover.cli.process import INTERRUPTED, StopKey, print_interrupted
from tokencover.errors import InputError, TokenCoverError, TokenCoverWarning

EXPLORE: Final = "Explore"
SERVE: Final = "Serve"
MEASURE: Final = "Measure"
OTHER_NAMES: Final = {"data": "tasks"}
"""Other names of options, without dashes, which help does not list."""
FAILED: Final = 1
WRONG_USAGE: Final = 2
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code: 1 failed, 2 wrong usage, 130 stopped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a shell has closed it by ``>&-``
            setattr(sys, name, _open_null())
    with StopKey() as key:
        try:
            code = _run_with_warnings(arguments)
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError:  # the reader, for example `head`, has ended
            sys.stdout, code = _open_null(), FAILED
        except Exception as error:
            code = WRONG_USAGE if isinstance(error, InputError) else FAILED
            if not key.pressed:
                if not isinstance(error, TokenCoverError | OSError):
                    raise
                with contextlib.suppress(OSError):  # the disk below standard error may be full, too
                    print(f"tokencover: {_describe(error)}", file=sys.stderr)
        if code and key.pressed:
            code = INTERRUPTED
    if code == INTERRUPTED:
        print_interrupted()
    return code


def _open_null() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _describe(error: Exception) -> str:
    """Return the message; of standard output on a full disk it has no file name."""
    if isinstance(error, OSError) and error.filename is None and error.errno in DISK_FULL:
        sys.stdout = _open_null()  # Python would write again at exit
        return f"Cannot write to standard output: {error.strerror}."
    return str(error)


def _run_with_warnings(arguments: Sequence[str] | None) -> int:
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        warnings.simplefilter("always", TokenCoverWarning)
        # Pillow warns where we raise an error.
        warnings.filterwarnings("ignore", "Image size .* exceeds limit")
        return run(arguments)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
) -> None:
    """Print our warnings in one line, and others as usual."""
    if issubclass(category, TokenCoverWarning):
        print(f"tokencover: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno), file=sys.stderr)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command without catching its errors, and return the exit code."""
    app = build_app(drawn=sys.stdout.isatty() and sys.stderr.isatty())
    words = None if arguments is None else list(arguments)
    try:
        get_command(app).main(args=words, prog_name="tokencover")
    except SystemExit as end:  # how typer ends every command, also a successful one
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


class CheckedCommand(TyperCommand):
    """A command whose errors about options name the value, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command's name."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            names = [] if error.param is None else error.param.opts
            given = [
                value if word in names else word.partition("=")[2]
                for word, value in itertools.pairwise([*words, ""])
                if word.partition("=")[0] in names
            ]
            # Of an option that is repeated, the wrong value is unknown.
            if len(given) == 1 and given[0].strip() and repr(given[0]) not in error.message:
                error.message = f"{error.message.rstrip('.')}, got {given[0]!r}."
            raise


def build_app(*, drawn: bool) -> typer.Typer:
    """Build the command line; `drawn` formats help for a terminal instead of as plain text."""
    app = typer.Typer(
        add_completion=False,
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if drawn else None,
        context_settings={
            "help_option_names": ["--help", "-h"],
            "token_normalize_func": lambda name: OTHER_NAMES.get(name, name),
        },
    )
    app.callback()(describe_program)
    add = partial(app.command, cls=CheckedCommand)
    add("ask", rich_help_panel=EXPLORE)(ask.ask)
    add("studio", rich_help_panel=EXPLORE)(studio.open_page)
    add("methods", rich_help_panel=EXPLORE)(lists.list_methods)
    add("models", rich_help_panel=EXPLORE)(lists.list_models)
    add("evaluate", rich_help_panel=MEASURE)(evaluate.evaluate_methods)
    add("judge", rich_help_panel=MEASURE)(judge.judge_answers)
    add("report", rich_help_panel=MEASURE)(report.write_report)
    add("ablate", rich_help_panel=MEASURE)(ablate.ablate_settings)
    add("calibrate", rich_help_panel=MEASURE)(calibrate.measure_coupling)
    add("bench", rich_help_panel=MEASURE)(bench.run_bench)
    add("serve", rich_help_panel=SERVE, context_settings=serve.PASS_ON)(serve.serve_model)
    return app


def print_version(is_requested: bool) -> None:
    """Print the version and exit, if that is requested."""
    if is_requested:
        from tokencover import __version__

        print(__version__)
        raise typer.Exit


def describe_program(
    version: Annotated[
        bool,
        option("--version", "Print the version.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    """Prune visual tokens of vision-language models."""
