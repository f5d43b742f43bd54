"""Files are opened only where they are files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triever.files import open_regular


def test_an_ordinary_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file", most=7) as file:
        assert file.read() == b"content"
        file.seek(3)
        assert file.read() == b"tent"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(OSError, match="it has 7 bytes, more than 6"):
        open_regular(tmp_path / "file", most=6)


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
