"""What tests of commands share."""

from collections.abc import Iterator

import pytest

from tests.cli.loaded_process import LoadedProcess


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProcess]:
    process = LoadedProcess()
    yield process
    process.end()
