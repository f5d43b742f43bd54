"""What is no regular file, given as input or lying in a folder of input: told at once or left out, never waited for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from triever.data.datasets import load_dataset
from triever.data.formats.json_items import is_one_object
from triever.data.readers import Problems, read_documents, read_expansions, read_qrels, read_queries, read_run
from triever.errors import TrieverError


def bind(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:  # its path must be short
        one.bind(path.name)


KINDS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "endless file of the system": lambda path: path.symlink_to("/proc/self/pagemap"),
    "waiting file of the system": lambda path: path.symlink_to("/proc/kmsg"),
    "file of the kernel": lambda path: path.symlink_to("/sys/kernel/notes"),
    "folder": Path.mkdir,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path),
}
NAMES = ["x.jsonl", "x.json", "x.txt", "x.parquet", "x.tsv.gz"]


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """What waits for a pipe is woken up and fails."""

    def wake(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_as_a_file(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    KINDS[kind](path)
    for read in (read_documents, read_queries, read_qrels, read_run, read_expansions):
        with pytest.raises(TrieverError, match="; "):
            list(read(path, Problems(skip_bad=kind == "folder")))
    with pytest.raises(TrieverError, match="; "):
        load_dataset(path)
    assert not is_one_object(path)


@pytest.mark.parametrize("name", [*NAMES, "manifest.json"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beside", ["corpus.jsonl", "notes.md"])
def test_it_is_left_out_or_told_in_a_folder(kind: str, name: str, beside: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / name)
    record = json.dumps({"_id": "d1", "title": "Cats", "text": "A cat."})
    (tmp_path / beside).write_text(record if beside == "corpus.jsonl" else "# Cats\n\nA cat.\n", encoding="utf-8")
    with contextlib.suppress(TrieverError):
        assert len(list(load_dataset(tmp_path, skip_bad=True).documents())) == 1


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    os.mkfifo(tmp_path / "part" / "manifest.json")
    (tmp_path / "part" / "notes.md").write_text("# Cats\n\nA cat.\n", encoding="utf-8")
    assert len(list(load_dataset(tmp_path).documents())) == 1


def test_what_a_link_or_a_descriptor_leads_to_is_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"_id": "d1", "title": "", "text": "A cat."}), encoding="utf-8")
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    assert [document.id for document in read_documents(link)] == ["d1"]
    with open(path, "rb") as file:
        assert [document.id for document in read_documents(f"/proc/self/fd/{file.fileno()}")] == ["d1"]
