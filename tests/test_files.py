"""Files are opened only where they are files, and appear whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triever.errors import DataError
from triever.files import append_regular, atomic, atomic_folder, open_regular


def test_an_ordinary_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file", limit=7) as file:
        assert file.read() == b"content"
        file.seek(3)
        assert file.read() == b"tent"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="it has 7 bytes, more than 6"):
        open_regular(tmp_path / "file", limit=6)


def test_what_is_missing_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "file")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_ordinary_file_is_refused_and_does_not_wait(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (tmp_path / "file").write_bytes(b"content")
    if kind == "link":
        place.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place = Path("/dev/zero")
    with pytest.raises(OSError, match="not an ordinary file") as caught:
        open_regular(place)
    assert caught.value.filename == str(place)


def test_a_pipe_that_takes_the_place_of_a_file_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, looked = tmp_path / "place", os.lstat
    place.write_bytes(b"content")

    def look(path: str | Path) -> os.stat_result:
        found = looked(path)
        place.unlink()
        os.mkfifo(place)
        return found

    monkeypatch.setattr(os, "lstat", look)
    with pytest.raises(OSError, match="not an ordinary file"):
        open_regular(place)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_nothing_is_appended_to_what_is_no_ordinary_file(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "link":
        place.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(OSError, match="not an ordinary file"):
        append_regular(place)
    assert not (tmp_path / "file").exists()


def test_what_is_appended_comes_behind(tmp_path: Path) -> None:
    for part in (b"one", b"two"):
        with append_regular(tmp_path / "file") as file:
            file.write(part)
    assert (tmp_path / "file").read_bytes() == b"onetwo"


@pytest.mark.parametrize("write", [atomic, atomic_folder])
def test_only_what_it_made_itself_is_removed(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0a1b2c3d")  # two draw the same name
    other = tmp_path / ".target.0a1b2c3d.tmp"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    with pytest.raises(DataError, match="cannot be written"), write(tmp_path / "target"):
        pass
    assert (other / "thesis.txt").read_text() == "x"


def test_a_limit_on_the_size_of_files_says_what_to_do(tmp_path: Path) -> None:
    code = "import sys; from triever.files import atomic\nwith atomic(sys.argv[1]) as file: file.write(bytes(10**7))"
    command = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "DataError: " in done.stderr
    assert "file cannot be written: File too large; allow larger files (ulimit -f)" in done.stderr
    assert list(tmp_path.iterdir()) == []
