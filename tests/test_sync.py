"""Bringing a retriever to the state of a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.warm import run
from triever import BM25, Dense, Document, Tuning
from triever.sync import Plan

TEXTS = st.tuples(st.sampled_from(["", "x", "y"]), st.integers(0, 1))
COLLECTIONS = st.dictionaries(st.sampled_from("abcdefgh"), TEXTS)


def documents(collection: dict[str, tuple[str, int]]) -> list[Document]:
    return [Document(name, text, metadata={"year": year}) for name, (text, year) in collection.items()]


@given(COLLECTIONS.filter(bool), COLLECTIONS)
def test_afterwards_a_retriever_holds_the_collection_and_only_what_differs_is_touched(
    before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]
) -> None:
    retriever = BM25().fit(triever.Dataset.of("before", documents(before)))
    plan = Plan.of(retriever.documents, documents(after))
    assert {document.id for document in plan.added} == after.keys() - before.keys()
    assert set(plan.deleted) == before.keys() - after.keys()
    both = before.keys() & after.keys()
    assert {document.id for document in plan.replaced} == {name for name in both if before[name] != after[name]}
    assert plan.unchanged == sum(before[name] == after[name] for name in both)
    held = retriever._held
    plan.carry_out(retriever)
    assert {document.id: document for document in retriever.documents} == {one.id: one for one in documents(after)}
    assert (retriever._held is held) == plan.is_empty == (before == after)
    stays = Plan.of(retriever.documents, [], deletes=False)
    assert stays.is_empty
    assert Plan.of(retriever.documents, documents(after)).is_empty


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("tea", "bread", "chess", "tides"):
        (notes / f"{name}.md").write_text(f"# About {name}\nWords about {name}.\n")
    assert run(["fit", "bm25", "--data", "notes", "--out", "model"], tmp_path).returncode == 0
    return tmp_path


def synced(folder: Path, *words: str) -> tuple[int, dict[str, object], str]:
    done = run(["sync", "model", "notes", "--json", *words], folder)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_the_command_says_what_it_did_and_writes_nothing_where_nothing_differs(folder: Path) -> None:
    notes, manifest = folder / "notes", folder / "model" / "manifest.json"
    (notes / "tea.md").write_text("# About tea\nOther words.\n")
    (notes / "bread.md").unlink()
    (notes / "new.md").write_text("# New\nA new file.\n")
    expected = {"added": ["new.md"], "replaced": ["tea.md"], "deleted": ["bread.md"], "unchanged": 2}
    written = manifest.stat().st_mtime_ns
    assert synced(folder, "--dry-run")[:2] == (0, expected)
    assert manifest.stat().st_mtime_ns == written
    assert synced(folder)[:2] == (0, expected)
    assert triever.load(folder / "model").search("other words")[0].id == "tea.md"
    written = manifest.stat().st_mtime_ns
    assert run(["sync", "model", "notes"], folder).stdout == "nothing to do; 4 unchanged\n"
    assert manifest.stat().st_mtime_ns == written


def test_more_than_half_is_deleted_only_if_that_is_said(folder: Path) -> None:
    for name in ("bread", "chess", "tides"):
        (folder / "notes" / f"{name}.md").unlink()
    code, _, message = synced(folder)
    assert code == 2
    assert "3 of 4 documents of model are not in notes, and would be deleted; check the folder, or say --yes" in message
    assert len(triever.load(folder / "model")) == 4
    assert synced(folder, "--yes")[1]["deleted"] == ["bread.md", "chess.md", "tides.md"]
    assert len(triever.load(folder / "model")) == 1


def test_it_is_said_that_what_is_left_out_counts_as_gone(folder: Path) -> None:
    (folder / "notes" / "tea.md").write_bytes(b"\x00\x01\xff")
    code, plan, said = synced(folder, "--skip-bad")
    assert (code, plan["deleted"]) == (0, ["tea.md"])
    assert "left out 1 bad record, such as " in said
    assert "what was left out counts as gone: tea.md is deleted; mend its file and sync again" in said


def test_it_watches_a_folder_until_it_is_interrupted(folder: Path) -> None:
    words = ["sync", "model", "notes", "--watch", "--every", "0.1", "--json"]
    code = [sys.executable, "-c", "from triever.cli import main; main()", *words]
    with subprocess.Popen(code, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["unchanged"] == 4
        (folder / "notes" / "new.md").write_text("# New\nA new file.\n")
        assert json.loads(watching.stdout.readline())["added"] == ["new.md"]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 130
    assert len(triever.load(folder / "model")) == 5


def test_add_replaces_only_what_differs(folder: Path) -> None:
    (folder / "notes" / "tea.md").write_text("# About tea\nOther words.\n")
    refused = run(["add", "model", "notes"], folder)
    assert refused.returncode == 2
    assert "more of these documents are too; replace what it has with --replace" in refused.stderr
    assert (
        "added 0 documents, replaced 1, 3 as they were; 4 in all"
        in run(["add", "model", "notes", "--replace"], folder).stderr
    )


def test_weights_that_stay_are_not_written_again(tmp_path: Path) -> None:
    small = "scratch:hidden=16,layers=1,heads=1,vocabulary=300"
    dense = Dense(backbone=small, training=Tuning(steps=0)).fit(triever.Dataset.of("one", [Document("a", "some text")]))
    dense.save(tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    state = os.stat(weights)
    with triever.edit(tmp_path / "model") as opened:
        opened.add([Document("b", "other text")])
    assert os.stat(weights).st_ino == state.st_ino
    assert len(triever.load(tmp_path / "model")) == 2
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")  # damaged: then it is not taken for the same
    dense.save(tmp_path / "model")
    assert len(triever.load(tmp_path / "model")) == 1
