"""A folder of more than a thousand mixed files, from fit to search, filter and sync; every file is accounted for."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import triever
from tests.marks import quick
from tests.mixed_folder import FILES, Written, write_mixed
from tests.warm import run

SMALL = ("--set", "backbone=scratch:hidden=32,layers=1,heads=2,vocabulary=1000", "--set", "training.steps=0")
SYSTEMS = {
    "bm25": (),
    "dense": SMALL,
    "generative": (*SMALL, "--set", "docids=semantic", "--set", "decoder.rows=nodes", "--set", "passages=0"),
    "gdr": (*SMALL, "--set", "docids.clusters=20", "--set", "decoder.rows=nodes", "--set", "passages=0"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Written]]:
    folder = tmp_path_factory.mktemp("mixed")
    return folder, write_mixed(folder / "files")


def accounted(sentence: str) -> int:
    """The files that the sentence about a reading names, read or not."""
    counts = re.findall(
        r"documents from ([\d,]+) files|not read: ([\d,]+)|(?:unreadable|unknown encoding): (\d+)", sentence
    )
    return sum(int(number.replace(",", "")) for groups in counts for number in groups if number)


def said(words: Sequence[object], folder: Path) -> tuple[str, str]:
    done = run(words, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("system", quick(of=SYSTEMS))
def test_every_file_is_accounted_for_and_documents_are_found_filtered_and_kept_current(
    written: tuple[Path, list[Written]], tmp_path: Path, system: str
) -> None:
    folder, files = written
    documents = [file for file in files if file.word]
    empty = sum(not file.raw for file in files)
    shutil.copytree(folder / "files", tmp_path / "files")
    refused = run(["fit", system, "--data", "files", "--out", "model", *SYSTEMS[system]], tmp_path)
    assert refused.returncode == 2
    assert "the PDF is damaged; open it in another program" in refused.stderr
    assert "leave it out with --skip-bad" in refused.stderr
    _, told = said(["fit", system, "--data", "files", "--out", "model", "--skip-bad", *SYSTEMS[system]], tmp_path)
    assert f"wrote model: {system} with {len(documents) + empty:,} documents" in told
    assert accounted(told.splitlines()[-1]) == FILES
    retriever = triever.load(tmp_path / "model")
    if system == "bm25":
        for result, file in zip(retriever.search_many([file.word for file in documents], 2), documents, strict=True):
            assert [hit.id for hit in result] == [file.path]
            assert file.word in result[0].snippet.text
    recent = {file.path for file in documents if file.year >= 2020}
    hits = retriever.search("notes of the garden", 1000, where={"year": ">=2020"})
    assert {hit.id for hit in hits} <= recent
    assert len(hits) == len(recent)
    _change(tmp_path / "files", documents)
    printed, _ = said(["sync", "model", "files", "--skip-bad", "--json"], tmp_path)
    plan = json.loads(printed)
    assert [len(plan[name]) for name in ("added", "replaced", "deleted")] == [1, 3, 2]
    assert plan["unchanged"] == len(documents) + empty - 5
    assert "new.md" in {hit.id for hit in triever.load(tmp_path / "model").search("quokka island", len(files))}


def _change(folder: Path, documents: Sequence[Written]) -> None:
    """Change three files, delete two, and add one."""
    texts = [folder / file.path for file in documents if file.path.endswith(".md")]
    for path in texts[:3]:
        path.write_text(f"{path.read_text()} It came back.")
    for path in texts[3:5]:
        path.unlink()
    (folder / "new.md").write_text("# A new file\nThe quokka lives on an island.\n")
