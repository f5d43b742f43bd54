"""The command `triever serve`, as a person starts and ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.serve.running import KEY, bm25, httpx, until
from tests.warm import run
from triever import Document
from triever.serve.defaults import default_sources, saved_folders
from triever.version import __version__


@contextmanager
def command(*words: str, **environment: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """`triever serve` in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "triever.cli", "serve", "--port", "0", *words],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://[\d.]+:\d+", line)
        assert found, line
        threading.Thread(target=process.stderr.read, daemon=True).start()
        until(lambda: answers(f"{found[0]}/readyz"), 60)
        yield process, found[0]
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.long
def test_sigterm_finishes_what_is_running_and_then_ends(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    with command(str(tmp_path / "m"), "--set", "window=1500", "--set", "most=50") as (process, url):
        answered: list[Any] = []
        ask = threading.Thread(
            target=lambda: answered.append(httpx.post(f"{url}/v1/search", json={"query": "water"}, timeout=20))
        )
        ask.start()  # it waits for others, for a second and a half
        time.sleep(0.4)
        process.send_signal(signal.SIGTERM)
        ask.join()
        assert answered[0].status_code == 200
        assert answered[0].json()["results"][0]["hits"]
        assert process.wait(20) == 0
        assert not answers(f"{url}/healthz")


@pytest.mark.long
def test_workers_see_what_one_of_them_has_changed(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    words = [str(tmp_path / "m"), "--workers", "2", "--set", "poll=0.1"]
    with command(*words, TRIEVER_KEY=KEY) as (process, url):
        triever.connect(url, KEY).add([Document("z", "A zebra.")])
        time.sleep(2)
        for _ in range(20):  # each a new connection, and so perhaps another worker
            answer = httpx.post(f"{url}/v1/search", json={"query": "zebra"}).json()
            assert [hit["id"] for hit in answer["results"][0]["hits"]] == ["z"]
        assert "triever_requests_total" in httpx.get(f"{url}/metrics").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.long
def test_without_a_model_it_serves_the_default_corpus_soon(tmp_path: Path) -> None:
    started = time.monotonic()
    with command(TRIEVER_CACHE=str(tmp_path)) as (_, url):
        assert time.monotonic() - started < 20
        answer = httpx.post(f"{url}/v1/search", json={"query": "merge several sorted lists into one"}).json()
        assert answer["results"][0]["hits"][0]["id"] == "heapq.merge"


def test_what_the_quickstart_saved_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path))
    assert [*default_sources()] == ["bm25"]
    bm25().save(tmp_path / f"quickstart-{__version__}-dense-0123456789abcdef")
    bm25().save(tmp_path / "quickstart-0.0.1-generative-0123456789abcdef")
    (tmp_path / f"quickstart-{__version__}-torn-0").mkdir()
    assert [*default_sources()] == ["bm25", "dense"]
    assert default_sources()["dense"].folder is None, "a cache is not changed by clients"
    assert len(default_sources()["dense"].make()) == 10
    assert [*saved_folders()] == ["dense"]


def refused(folder: Path, *words: str) -> str:
    done = run(["serve", *words], folder)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_what_cannot_be_served_is_a_sentence(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    (tmp_path / "empty").write_text("")
    assert "nothing does not exist" in refused(tmp_path, "nothing")
    assert "window" in refused(tmp_path, "m", "--set", "window=-1")
    assert "two systems" in refused(tmp_path, "m", "m")
    assert "cannot be listened on" in refused(tmp_path, "m", "--host", "203.0.113.1")
    assert "is empty" in refused(tmp_path, "m", "--key-file", "empty")
    assert "cannot be read" in refused(tmp_path, "m", "--key-file", "nothing")
    assert "--on rya is not known; the only other place to serve is: --on ray" in refused(tmp_path, "m", "--on", "rya")


@pytest.mark.long
def test_without_the_extra_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    code = (
        "import sys; sys.modules['fastapi'] = None; import triever.serve\n"
        "from triever.cli import main; main(['serve', 'm', '--port', '0'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "triever: the server needs a package that is not installed; run: pip install 'triever[serve]'"
    )
