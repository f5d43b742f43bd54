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
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
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
