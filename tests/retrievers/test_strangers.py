"""What a stranger's manifest says about other places is never followed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.artifact_fuzz import read_manifest, sign, unpacked
from triever import ArtifactError

OPENED: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        OPENED.append(os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_watch)  # which cannot be taken away again


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Every file that is opened."""
    global _watching
    OPENED.clear()
    _watching = True
    yield OPENED
    _watching = False


def changed(name: str, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    unpacked(name, folder)
    raw = read_manifest(folder)
    change(raw["options"])
    sign(folder, raw)
    return folder


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fused-1", lambda options: options["systems"].__setitem__(0, "other")),
        ("fused-1", lambda options: options.update(systems="other")),
        ("gdr-1", lambda options: options.update(vectors="other")),
        ("generative_semantic-1", lambda options: options.update(vectors="other")),
        ("reranked-1", lambda options: options.update(first="other")),
        ("reranked-1", lambda options: options.update(first={"kind": "fused", "systems": ["other"]})),
    ],
)
def test_a_retriever_that_is_elsewhere_is_not_opened(
    name: str, change: Callable[[dict[str, Any]], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list
) -> None:
    monkeypatch.chdir(tmp_path)
    unpacked("dense-1", tmp_path / "other")
    folder = changed(name, tmp_path / "model", change)
    opened.clear()
    with pytest.raises(
        ArtifactError, match=r"its option \w+ = 'other' names a folder, but an artifact holds all of its parts"
    ):
        triever.load(folder)
    assert not [path for path in opened if path.startswith(str(tmp_path / "other"))]


def test_other_paths_are_a_record_and_nothing_else(tmp_path: Path, opened: list[str]) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "tokenizer.json").write_text("{}")

    def change(options: dict[str, Any]) -> None:
        options["backbone"] = str(secret)
        options["docids"]["tokenizer"] = str(secret)

    folder = changed("generative_title-1", tmp_path / "model", change)
    opened.clear()
    retriever = triever.load(folder)
    assert len(retriever.search("tea")) == 10
    retriever.add([triever.Document("tea 2", "A text.")])
    retriever.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["options"]["backbone"] == str(secret)
    assert not [path for path in opened if path.startswith(str(secret))]


def test_the_filter_of_a_saved_writer_is_not_opened(tmp_path: Path, opened: list[str]) -> None:
    unpacked("reranked-1", tmp_path / "judge")
    folder = changed("query_writer-1", tmp_path / "writer", lambda o: o.update(filter=str(tmp_path / "judge")))
    opened.clear()
    writer = triever.QueryWriter.load(folder, {"per_document": 1, "query_length": 4})
    assert len(dict(writer.write([triever.Document("d", "a text")]))) == 1
    assert not [path for path in opened if path.startswith(str(tmp_path / "judge"))]
    judged = triever.QueryWriter.load(folder, {"per_document": 1, "filter": str(tmp_path / "judge")})
    assert judged.filter == str(tmp_path / "judge")
