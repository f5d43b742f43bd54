"""Which commit a result says it was made with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from triever.lab import results

OURS = Path("src/triever/lab/results.py")

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a surrounding repository nor a person's settings may decide."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "TRIEVER_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "x")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "x@example.org")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(root: Path, file: Path, *, tracked: bool) -> str:
    """A repository with a copy of our file in it; its commit."""
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text("# a copy\n")
    git(root, "init", "-q")
    if tracked:
        git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "x")
    return git(root, "rev-parse", "--short", "HEAD")


def commit_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(results, "__file__", str(file))
    return results.commit()


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = repository(tmp_path, OURS, tracked=True)
    assert commit_of(tmp_path / OURS, monkeypatch) == head
    (tmp_path / OURS).write_text("# changed\n")
    assert commit_of(tmp_path / OURS, monkeypatch) == f"{head}-changed"


def test_a_checkout_may_be_reached_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    head = repository(tmp_path / "real", OURS, tracked=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert commit_of(tmp_path / "link" / OURS, monkeypatch) == head


@pytest.mark.parametrize("tracked", [False, True])
def test_a_package_in_another_repository_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracked: bool
) -> None:
    file = Path(".venv/lib/site-packages/triever/lab/results.py")
    repository(tmp_path, file, tracked=tracked)
    assert commit_of(tmp_path / file, monkeypatch) == ""


def test_a_file_that_is_not_tracked_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path, OURS, tracked=False)
    assert commit_of(tmp_path / OURS, monkeypatch) == ""


def test_without_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path / OURS, monkeypatch) == ""


def test_where_git_knows_no_commit_the_environment_may_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("TRIEVER_COMMIT", " 90ca900\n")
    assert commit_of(tmp_path / OURS, monkeypatch) == "90ca900"
    monkeypatch.setattr(results, "_git", _no_git)
    assert results.commit() == "90ca900", "a machine without git"


def _no_git(*_words: str) -> str:
    raise FileNotFoundError("git")


def test_a_package_in_another_repository_may_be_told_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(".venv/lib/site-packages/triever/lab/results.py")
    repository(tmp_path, file, tracked=True)
    monkeypatch.setenv("TRIEVER_COMMIT", "90ca900")
    assert commit_of(tmp_path / file, monkeypatch) == "90ca900"


def test_a_checkout_is_believed_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_COMMIT", "90ca900")
    head = repository(tmp_path, OURS, tracked=True)
    assert commit_of(tmp_path / OURS, monkeypatch) == head


# --- the page -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gained", "shown"), [(289, False), (0, True)])
def test_an_older_file_that_says_none_of_many_is_shown_without_it(tmp_path: Path, gained: int, shown: bool) -> None:
    """Files of `analyse overlap --examples 0` have a list that says "none", however many questions there are."""
    sets = [{"set": name, "questions": count} for name, count in zip("abcd", (3, 2, gained, 1), strict=True)]
    parts = [{"title": "Scores", "lines": ["x"]}, {"title": "Found by B and not by A", "lines": ["none"]}]
    finding = {"values": {"sets": sets, "examples": []}, "parts": parts}
    machine = {"processor": "x", "cores": 2}
    result = {"command": "triever analyse overlap", "seconds": 1.0, "finding": finding, "hardware": machine}
    results.write(tmp_path / "overlap.json", result)
    page = results.render(tmp_path)
    assert "**Scores**" in page
    assert ("Found by B and not by A" in page) is shown
