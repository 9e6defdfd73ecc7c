"""The tested versions of torch and transformers."""

from __future__ import annotations

import functools
import warnings
from importlib.metadata import version
from typing import Final

from tokencover.errors import TokenCoverWarning

TESTED: Final = {"torch": ("2.6", "2.15"), "transformers": ("5.19", "5.23")}
"""The lowest and the newest tested version of each package."""


def read_version(text: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


@functools.cache
def warn_of_newer_versions() -> None:
    """Warn once if an installed version is newer than the newest tested one."""
    for name, (_, newest) in TESTED.items():
        if read_version(version(name)) > read_version(newest):
            warnings.warn(
                f"{name} {version(name)} is newer than {newest}, the newest version that "
                f"tokencover was tested with. If something fails, install {name}=={newest}.*",
                TokenCoverWarning,
                stacklevel=2,
            )
