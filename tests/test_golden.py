"""Artifacts that earlier versions wrote, one of every kind: they open, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import triever
from tests.artifact_fuzz import same, unpacked
from tests.golden import make_artifacts as golden
from triever.retriever import KINDS

EXPECTED = json.loads(golden.EXPECTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_saved_opens_and_answers_as_it_did(name: str, tmp_path: Path) -> None:
    unpacked(name, tmp_path / "model")
    if name.startswith(golden.WRITER):
        assert len(dict(triever.QueryWriter.load(tmp_path / "model").write(golden.documents(5)))) == 5
        return
    retriever = triever.load(tmp_path / "model")
    assert same(golden.answers(retriever), EXPECTED[name])
    retriever.add([triever.Document("tea 2", "Another text.")])
    retriever.delete(["tea"])
    retriever.save(tmp_path / "again")
    assert "tea 2" in triever.load(tmp_path / "again").documents


def test_there_is_one_of_every_kind(tmp_path: Path) -> None:
    kinds = set()
    for name in EXPECTED:
        unpacked(name, tmp_path / name)
        kinds.add(json.loads((tmp_path / name / "manifest.json").read_text())["kind"])
    assert kinds == {*KINDS, triever.QueryWriter.kind}
    assert {path.stem for path in golden.FOLDER.glob("*.zip")} == set(EXPECTED)
