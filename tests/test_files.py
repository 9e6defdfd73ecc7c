"""Files are whole or not there, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from tokencover.errors import InputError, WriteError
from tokencover.files import (
    UNFINISHED,
    check_document,
    read_document,
    read_object,
    write_atomically,
    write_document,
)

OLD = b"precious"
MEGABYTE = 1 << 20


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that is there already."""
    path = tmp_path / "kept.bin"
    path.write_bytes(OLD)
    return path


def assert_untouched(path: Path) -> None:
    assert path.read_bytes() == OLD
    assert list(path.parent.iterdir()) == [path]


def test_bytes_text_and_what_writes_itself(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.bin"
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_atomically(str(path), "größer\r\n")
    assert path.read_bytes() == "größer\r\n".encode()
    write_atomically(path, lambda file: file.write(b"itself"))
    assert path.read_bytes() == b"itself"
    assert list(path.parent.iterdir()) == [path]


def test_tensors_can_be_written_into_the_file(tmp_path: Path) -> None:
    weights = torch.arange(6.0).reshape(2, 3)
    state = {"weights": weights, "step": 3}
    write_atomically(tmp_path / "state.pt", lambda file: torch.save(state, file))
    found = torch.load(tmp_path / "state.pt", weights_only=True)
    assert found["step"] == 3
    assert torch.equal(found["weights"], weights)


def test_written_files_follow_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file", "shared")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_readers_get_old_or_new_file(tmp_path: Path) -> None:
    path, stop = tmp_path / "file", threading.Event()
    whole = {bytes([letter]) * 300_000 for letter in b"abcdefgh"}
    write_atomically(path, min(whole))
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for content in [*sorted(whole)] * 5:
        write_atomically(path, content)
    stop.set()
    for reader in readers:
        reader.join()
    assert seen
    assert seen <= whole


def test_several_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    whole = [bytes([letter]) * 100_000 for letter in b"abcdefgh"]
    writers = [threading.Thread(target=write_atomically, args=(path, each)) for each in whole]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() in whole
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_middle_loses_nothing(old: Path, error: type[BaseException]) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(error):
        write_atomically(old, write)
    assert_untouched(old)


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_full_disk_loses_nothing(old: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match=r"kept\.bin cannot be written: No space left on"):
            write_atomically(old, full if call == "write" else b"new")
    assert_untouched(old)


def test_file_too_large_keeps_old_content(old: Path) -> None:
    """The system refuses to write on, as it does when a disk or a quota is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(old, b"x" * (2 * MEGABYTE))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert_untouched(old)


def test_what_may_not_be_replaced_loses_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", denied)
        with pytest.raises(WriteError, match=r"kept\.bin cannot be written: Permission denied"):
            write_atomically(old, b"new")
    assert_untouched(old)


def test_folder_creation_failure_keeps_content(old: Path) -> None:
    with pytest.raises(OSError, match="kept"):
        write_atomically(old / "below" / "file", b"new")
    assert_untouched(old)


def test_process_killed_while_writing_keeps_content(old: Path) -> None:
    code = (
        "import sys, time; from tokencover.files import write_atomically\n"
        "def write(file):\n"
        "    file.write(b'half'); file.flush(); print('now', flush=True); time.sleep(60)\n"
        "write_atomically(sys.argv[1], write)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(old)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.kill()
    assert old.read_bytes() == OLD
    (left,) = (each for each in old.parent.iterdir() if each != old)
    assert left.name.startswith(".kept.bin.")
    assert left.suffix == UNFINISHED


def test_documents_go_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "profile.json"
    write_document(path, "profile", {"version": 2, "values": [0.5, None]})
    assert path.read_text().endswith("}\n")
    assert read_document(path, "profile", 2, make="make one") == {"values": [0.5, None]}
    assert read_object(path)["format"] == "profile"
    with pytest.raises(ValueError, match="nan"):
        write_document(path, "profile", {"version": 2, "values": [float("nan")]})
    assert read_document(path, "profile", 2, make="make one") == {"values": [0.5, None]}


def test_foreign_documents_raise(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    with pytest.raises(InputError, match=r"no profile at .*: make one\."):
        read_document(path, "profile", 2, make="make one")
    path.write_text("{")
    with pytest.raises(InputError, match=r"cannot be read as JSON.*make one"):
        read_document(path, "profile", 2, make="make one")
    for found, message in [
        ([], "is not a profile"),
        ({"format": "poem"}, "is not a profile"),
        ({"format": "profile", "version": 1}, "of version 1, this tokencover reads version 2"),
    ]:
        path.write_text(json.dumps(found))
        with pytest.raises(InputError, match=f"{message}.*make one"):
            read_document(path, "profile", 2, make="make one")
        with pytest.raises(InputError, match=f"here.*{message}.*make one"):
            check_document(found, "profile", 2, source="here", make="make one")


def test_non_object_document_raises_value_error(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for text in ("[]", "{", "", "\x00"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"JSON|char|column"):
            read_object(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="decode"):
        read_object(path)
    with pytest.raises(FileNotFoundError):
        read_object(tmp_path / "nowhere.json")
