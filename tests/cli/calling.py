"""Calls commands as a person does, but lets their errors through."""

from __future__ import annotations

from tokencover.cli.app import run


def call(*arguments: object) -> None:
    """Run ``tokencover`` with these arguments; ends with `SystemExit` if it was not successful."""
    code = run(list(map(str, arguments)))
    if code:
        raise SystemExit(code)
