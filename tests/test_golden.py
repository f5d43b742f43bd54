"""Artifacts that earlier versions wrote, one of every kind: they open, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import triever
from tests.artifact_fuzz import same, unpacked
from tests.golden import make_artifacts as golden
from tests.marks import quick
from triever import config
from triever.artifact import VERSION, digest_of
from triever.retriever import KINDS

EXPECTED = json.loads(golden.EXPECTED.read_text(encoding="utf-8"))


EARLIER = [name for name in EXPECTED if not name.endswith(f"-{VERSION}")]


@pytest.mark.parametrize("name", quick(*EARLIER, "bm25-2", of=EXPECTED))
def test_what_was_saved_opens_and_answers_as_it_did(name: str, tmp_path: Path) -> None:
    unpacked(name, tmp_path / "model")
    if name.startswith(golden.WRITER):
        assert len(dict(triever.QueryWriter.load(tmp_path / "model").write(golden.documents(5)))) == 5
        return
    retriever = triever.load(tmp_path / "model")
    assert same(golden.answers(retriever), EXPECTED[name])
    if isinstance(retriever, triever.GivenVectors):  # an artifact holds no program that makes vectors
        retriever = retriever.asked_by(golden.letters)
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


def test_an_option_that_there_was_not_yet_is_as_it_was_then(tmp_path: Path) -> None:
    """Codebooks are balanced by default now; in an artifact that does not say, they are not."""
    unpacked("generative_codebook-1", tmp_path / "model")
    assert "balanced" not in json.loads((tmp_path / "model" / "manifest.json").read_text())["options"]["docids"]
    retriever = triever.load(tmp_path / "model")
    assert isinstance(retriever, triever.Generative)
    assert isinstance(retriever.docids, triever.Codebook)
    assert not retriever.docids.balanced
    assert triever.Codebook().balanced
    retriever.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["options"]["docids"]["balanced"] is False


@pytest.mark.parametrize("is_said", [True, False])
def test_a_part_of_an_artifact_is_as_it_was_then_too(tmp_path: Path, is_said: bool) -> None:
    data = triever.Dataset.of("golden", golden.documents())
    part = golden.generative(triever.Codebook(levels=2, bits=3))
    triever.Fused(systems=(triever.BM25(), part)).fit(data).save(tmp_path / "model")
    file = tmp_path / "model" / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    docids = manifest["options"]["systems"][1]["docids"]
    assert docids["balanced"]
    if not is_said:
        del docids["balanced"]
    file.write_text(json.dumps({**manifest, "digest": digest_of(manifest)}, indent=1), encoding="utf-8")
    opened = triever.load(tmp_path / "model")
    assert isinstance(opened, triever.Fused)
    assert config.to_dict(opened.systems[1])["docids"]["balanced"] == is_said
