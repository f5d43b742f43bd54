"""A work folder is known by a file that only Triever writes, and nothing of anybody else's is ever removed."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES
from tests.warm import Begun, run
from triever import Dataset
from triever.config import build
from triever.data.writers import write_dataset
from triever.errors import ArtifactError, TrieverError, UsageError
from triever.retriever import system
from triever.work_folder import LOCK, MARKER, claim, discard, is_begun, remove

WHAT = {"kind": "dense", "options": {"seed": 0}}
OTHER = {"kind": "dense", "options": {"seed": 1}}
OWN = [
    "training/training.json",
    "training/.lock",
    "training/weights-00000500.safetensors",
    "training/optimizer-00000500.safetensors",
    "training/metrics.jsonl",
    "training/tensorboard/events.out.tfevents.1700000000.host.7.0",
    "training/.training.json.0a1b2c3d.tmp",
    "training/.weights-00000501.safetensors.0a1b2c3d.tmp",
    "training/.tmpBiNUNc",
    "contrast/training.json",
    "first/training/training.json",
    "system12/vectors/training/weights-00000000.safetensors",
    "documents/tokens.npy",
    "documents/starts.npy",
    "documents/behind titles/.tokens.npy.0a1b2c3d.tmp",
    "vectors/documents/tokens.npy",
    "teacher/first/training/training.json",
    "vectors/teacher/documents/starts.npy",
    "000003.jsonl",
    ".000004.jsonl.0a1b2c3d.tmp",
]
STRANGE = {  # and what of it is told: a folder that is not Triever's is not looked into
    "thesis.txt": "thesis.txt",
    "what.json": "what.json",
    "training/notes.txt": "training/notes.txt",
    "training/weights-500.safetensors": "training/weights-500.safetensors",
    "training/tensorboard/mine/events.out.tfevents.1": "training/tensorboard/mine",
    "documents/thesis.doc": "documents/thesis.doc",
    "mine/training/training.json": "mine",
    "systems/training/training.json": "systems",
    ".thesis.txt.0a1b2c3d.tmp": ".thesis.txt.0a1b2c3d.tmp",
    ".git/config": ".git",
}


def put(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_that_triever_makes_is_removed(tmp_path: Path) -> None:
    work = claim(tmp_path / "work", WHAT)
    for name in OWN:
        put(work, name)
    claim(work, WHAT)
    remove(work)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", STRANGE)
def test_what_somebody_else_put_there_survives_and_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = claim(tmp_path / "work", WHAT)
    for own in OWN:
        put(work, own)
    put(work, name)
    told = STRANGE[name]
    with pytest.raises(UsageError, match=f"work holds {told}, which Triever does not write there; work in a new"):
        claim(work, WHAT)
    before = files(work)
    discard(work)
    assert files(work) == before
    with caplog.at_level(logging.WARNING, "triever"):
        remove(work)
    assert f"work is not removed, because it holds {told}, which Triever" in caplog.text
    assert list(files(work)) == [name]


def test_links_are_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    put(home, "training.json")
    put(home, "weights-00000001.safetensors")
    work = claim(tmp_path / "work", WHAT)
    (work / "training").symlink_to(home, target_is_directory=True)
    (work / "000001.jsonl").symlink_to(home / "training.json")
    with pytest.raises(UsageError, match=r"work holds 000001\.jsonl, which Triever does not"):
        claim(work, WHAT)
    assert not is_begun(work)
    remove(work)
    assert sorted(files(home)) == ["training.json", "weights-00000001.safetensors"]
    assert sorted(path.name for path in work.iterdir()) == ["000001.jsonl", "training"]


def test_a_pipe_is_somebody_elses(tmp_path: Path) -> None:
    work = claim(tmp_path / "work", WHAT)
    (work / "training").mkdir()
    os.mkfifo(work / "training" / "training.json")
    with pytest.raises(UsageError, match=r"work holds training/training\.json, which Triever does not"):
        claim(work, WHAT)


@pytest.mark.parametrize("name", ["training/training.json", "000001.jsonl", "documents/tokens.npy"])
def test_names_like_triever_s_do_not_make_a_work_folder(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    before = files(tmp_path)
    with pytest.raises(UsageError, match=rf"holds {name} but no triever-work\.json, so it may be somebody else's"):
        claim(tmp_path, WHAT)
    remove(tmp_path)
    assert files(tmp_path) == before


def test_an_earlier_version_s_work_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for name in ("what.json", "training/training.json", "training/.lock", "training/.weights-00000003.safetensors.tmp"):
        put(tmp_path, name)
    before = files(tmp_path)
    with pytest.raises(UsageError, match="of an earlier version of Triever; finish it with that version"):
        claim(tmp_path, WHAT)
    discard(tmp_path)
    remove(tmp_path)
    assert files(tmp_path) == before


def test_other_work_is_refused_once_it_is_begun(tmp_path: Path) -> None:
    work = claim(tmp_path / "work", WHAT)
    tokens = put(work, "documents/behind titles/tokens.npy")
    claim(work, WHAT)
    assert tokens.exists(), "it may be that of a process of the same work"
    claim(work, OTHER)
    assert not tokens.exists(), "nothing of another work is taken for one's own"
    put(work, "training/training.json")
    assert is_begun(work)
    before = files(work)
    with pytest.raises(UsageError, match=r"work holds unfinished work with other options \(seed = 1, not 0\); remove"):
        claim(work, WHAT)
    discard(work)
    assert files(work) == before
    claim(work, OTHER)


def test_a_removal_that_is_killed_leaves_nothing_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = claim(tmp_path / "work", WHAT)
    for name in OWN:
        put(work, name)
    unlink, left = Path.unlink, iter(range(14))

    def killed(path: Path, missing_ok: bool = False) -> None:
        if path.is_relative_to(work) and next(left, None) is None:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        remove(work)
    assert (work / "training" / "training.json").exists()
    assert not (work / "training" / "metrics.jsonl").exists(), "in the middle"
    assert not is_begun(work)
    claim(work, WHAT)
    assert sorted(files(work)) == [LOCK, MARKER]


DAMAGE: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "torn": lambda raw: json.dumps(raw).encode()[:-9],
    "empty": lambda _: b"",
    "another value": lambda raw: json.dumps({**raw, "what": OTHER}).encode(),
    "no object": lambda _: b"[]",
    "somebody's": lambda _: b'{"my": "notes"}',
    "no text": lambda _: b"\xff\xfe{",
    "deep": lambda _: b"[" * 100_000,
    "deep object": lambda _: b'{"a":' * 100_000,
    "later": lambda raw: json.dumps({**raw, "version": 2}).encode(),
    "what": lambda raw: json.dumps({**raw, "what": 3}).encode(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_marker_is_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    work = claim(tmp_path / "work", WHAT)
    put(work, "training/training.json")
    (work / MARKER).write_bytes(DAMAGE[damage](json.loads((work / MARKER).read_bytes())))
    before = files(work)
    with pytest.raises(ArtifactError, match=r"work\.json (is damaged|was not|was changed).*; remove that folder"):
        claim(work, WHAT)
    discard(work)
    remove(work)
    assert files(work) == before


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_marker_that_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    marker = claim(tmp_path / "work", WHAT) / MARKER
    marker.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(marker)
    elif kind == "link":
        marker.symlink_to(tmp_path / "elsewhere")
    else:
        marker.mkdir()
    with pytest.raises(TrieverError, match=r"triever-work\.json"):
        claim(tmp_path / "work", WHAT)
    remove(tmp_path / "work")
    assert marker.exists()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    put(tmp_path, "file")
    with pytest.raises(TrieverError, match=r"work cannot be created: .*; choose another folder"):
        claim(tmp_path / "file" / "work", WHAT)


# What retrievers put there

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
TRAINING = {"steps": 2, "batch": 2, "holdout": 0.0, "tensorboard": True}
LEARNED = {"backbone": SMALL, "training": TRAINING}
DENSE = {"kind": "dense", **LEARNED}
SYSTEMS: dict[str, dict[str, Any]] = {
    "bm25": {},
    "dense": LEARNED,
    "multivector": LEARNED,
    "reranked": {**LEARNED, "first": DENSE},
    "fused": {"systems": [{"kind": "bm25"}, DENSE]},
    "generative": {**LEARNED, "vectors": DENSE},
    "gdr": {**LEARNED, "joint": True, "docids": {"kind": "cluster", "clusters": 3}},
    "contextual": LEARNED,
}


@pytest.mark.parametrize("kind", SYSTEMS)
def test_every_system_puts_there_only_what_is_known(kind: str, tmp_path: Path) -> None:
    data = Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS})
    build(system(kind), SYSTEMS[kind]).fit(data, work=tmp_path / "work")
    assert set(files(tmp_path / "work")) > ({MARKER} if kind == "bm25" else {MARKER, LOCK})
    claim(tmp_path / "work", json.loads((tmp_path / "work" / MARKER).read_bytes())["what"])
    remove(tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


# What a person sees


def triever(folder: Path, *words: str) -> CompletedProcess[str]:
    return run(words, folder)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "data", Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS}))
    (tmp_path / "two.jsonl").write_text('{"_id": "a", "text": "one"}\n{"_id": "b", "text": "two"}\n')
    return tmp_path


COMMANDS = {
    "fit": (["fit", "bm25", "--data", "two.jsonl", "--out", "m"], "m.work"),
    "a fit that fails": (["fit", "bm25", "--data", "missing.jsonl", "--out", "m"], "m.work"),
    "write-queries": (["write-queries", "two.jsonl", "--out", "m", "--set", "backbone=missing"], "m.work"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("begun", [False, True])
def test_a_person_s_files_are_never_removed(command: str, begun: bool, here: Path) -> None:
    words, name = COMMANDS[command]
    (here / name).mkdir()
    (here / name / "what.json").write_text('{"my":"notes"}')
    (here / name / "thesis.txt").write_text("x")
    if begun:
        put(here / name, "training/training.json")
    before = files(here / name)
    done = triever(here, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert files(here / name) == before
    if "missing.jsonl" not in words:
        assert "holds thesis.txt, which Triever does not write there; work in a new folder" in done.stderr


def test_a_file_that_is_added_during_a_fit_survives_it(here: Path) -> None:
    small = {"backbone": SMALL, "training.steps": 30, "training.batch": 2, "training.checkpoint_every": 1}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    with (here / "errors").open("w") as errors:
        fit = Begun(["fit", "dense", "--data", "data", "--out", "m", *settings], here, errors=errors.fileno())
    while not (here / "m.work" / "training" / "training.json").exists():
        assert fit.running()
        time.sleep(0.001)
    (here / "m.work" / "training" / "thesis.txt").write_text("x")
    ended, said = fit.wait(), (here / "errors").read_text()
    assert ended == 0, said
    assert "m.work is not removed, because it holds training/thesis.txt, which Triever does not write there" in said
    assert files(here / "m.work") == {"training/thesis.txt": b"x"}
    assert (here / "m" / "manifest.json").exists()


def test_an_experiment_removes_only_what_it_made(here: Path) -> None:
    recipe = """
title = "toy"
[data]
name = "data"
train = "train"
test = "train"
[[cells]]
label = "one"
kind = "bm25"
[settings.smoke]
"""
    (here / "toy.toml").write_text(recipe)
    done = triever(here, "experiment", "toy.toml", "--work", "work", "--list", "--json")
    assert done.returncode == 0, done.stderr
    first = triever(here, "experiment", "toy.toml", "--work", "work")
    assert first.returncode == 0, first.stderr
    (result,) = (here / "results").rglob("one-seed0.json")
    definition = json.loads(result.read_text())["definition"]
    place = here / "work" / "toy" / "smoke" / f"one-seed0-{definition}"
    assert not place.exists()
    put(place, "thesis.txt")
    put(place, "what.json")
    triever(here, "experiment", "toy.toml", "--work", "work", "--again")
    assert sorted(files(place)) == ["thesis.txt", "what.json"]
    assert "thesis.txt, which Triever does not write there" in result.read_text()
