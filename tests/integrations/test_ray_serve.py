"""The server on Ray Serve answers what the plain one answers, and changes what it serves without a failed request."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WHY = "serving on Ray is tested where that is installed: make test-all"
pytest.importorskip("ray", reason=WHY)
pytest.importorskip("ray.serve", reason=WHY)

import ray  # noqa: E402

from tests.serve.running import HEADERS, KEY, bm25, httpx, running, until  # noqa: E402
from triever import Document, ServerError, UsageError  # noqa: E402
from triever.integrations import ray_serve  # noqa: E402
from triever.integrations.ray import started  # noqa: E402
from triever.serve import ServeOptions  # noqa: E402

pytestmark = pytest.mark.long
OPTIONS = ServeOptions(key=KEY, log="none", port=0, workers=2, poll=0.1, window=200, deadline=20)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old artifact, a new one with another document, the new one in shards, and one that is damaged."""
    folder = tmp_path_factory.mktemp("models")
    bm25().save(folder / "old")
    new = bm25(Document("zebra", "A zebra drinks water."))
    new.save(folder / "new")
    new.save(folder / "shards", shards=2)
    shutil.copytree(folder / "new", folder / "broken")
    [vocabulary] = (folder / "broken").glob("vocabulary-*")
    vocabulary.write_bytes(b"torn")
    return folder


@pytest.fixture(scope="module")
def url(folders: Path) -> Iterator[str]:
    """The address of a server on Ray with two replicas, which serves the old artifact at first."""
    assert not ray.is_initialized(), "another test has left a Ray behind"
    started()
    yield ray_serve.deploy({"m": folders / "old"}, OPTIONS)
    ray_serve.end()
    ray.shutdown()


@pytest.mark.parametrize(
    ("gpus", "replicas", "share"), [(0, 2, 0), (1, 1, 0.5), (3, 2, 1), (4, 4, 0.5), (2, 10, 1 / 6)]
)
def test_there_is_room_for_a_rollout_on_gpus(
    gpus: int, replicas: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": float(gpus)})
    assert ray_serve.share_of_gpu(replicas) == pytest.approx(share)


QUERIES = ["boiling water for tea leaves", "moon", "nothing that anybody wrote"]
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/v1/retrievers", None),
    ("GET", "/v1/documents?id=nobody", None),
    ("GET", "/nothing", None),
    ("POST", "/v1/search", {"query": QUERIES[0]}),
    ("POST", "/v1/search", {"query": QUERIES[0], "k": 3, "show": "text"}),
    ("POST", "/v1/search", {"queries": QUERIES, "k": 2, "show": "ids", "retriever": "m"}),
    ("POST", "/v1/search", {"query": QUERIES[1], "where": {"year": ">=2020"}}),
    ("POST", "/v1/search", {"query": QUERIES[0], "retriever": "other"}),
    ("POST", "/v1/search", {"query": QUERIES[0], "k": 0}),
    ("POST", "/v1/search", {}),
    ("POST", "/v1/explain", {"query": QUERIES[0], "k": 2}),
    ("POST", "/v1/compare", {"query": QUERIES[0], "k": 2}),
    ("POST", "/v1/answer", {"question": QUERIES[0]}),
    ("POST", "/v1/documents", {"documents": [{"id": "x", "text": "without the key"}]}),
    ("PUT", "/v1/search", {"query": QUERIES[0]}),
]


def test_the_answers_are_those_of_the_plain_server(url: str, folders: Path) -> None:
    with running({"m": folders / "old"}) as plain, httpx.Client(base_url=url, timeout=30) as client:
        for method, path, body in REQUESTS:
            own, expected = (asked.request(method, path, json=body) for asked in (client, plain.client))
            assert (own.status_code, own.json()) == (expected.status_code, expected.json()), (method, path, body)
            for name, value in expected.headers.items():
                if name not in ("date", "server"):
                    assert own.headers[name] == value, (method, path, name)
        statuses = {client.request(method, path, json=body).status_code for method, path, body in REQUESTS}
        assert statuses == {200, 401, 404, 405, 422}
        refused = client.get("/healthz", headers={"Host": "example.org"})
        assert (refused.status_code, refused.json()["code"]) == (400, "wrong_host")


def test_requests_of_several_clients_are_searched_together(url: str) -> None:
    def ask(number: int) -> int:
        return httpx.post(f"{url}/v1/search", json={"query": f"water {number}"}, timeout=30).status_code

    def ask_at_once() -> bool:
        with ThreadPoolExecutor(32) as threads:
            assert [*threads.map(ask, range(32))] == [200] * 32
        return largest_batch(url) > 4

    assert largest_batch(url) <= 4  # a request may have several queries itself
    # A replica waits for others only behind a search for several clients, so it is chance when it begins to.
    until(ask_at_once, seconds=60)


def largest_batch(url: str) -> float:
    """The upper bound of the largest batch that either replica tells of; which of them answers is chance."""
    texts = [httpx.get(f"{url}/metrics").text for _ in range(20)]
    bounds = [0.0]
    for text in texts:
        counts = re.findall(r'triever_batch_queries_bucket{le="([\d.]+)",retriever="m"} ([\d.]+)', text)
        total = max((float(count) for _, count in counts), default=0.0)
        bounds += [min(float(bound) for bound, count in counts if float(count) == total)] if total else []
    return max(bounds)


def test_a_rollout_that_clients_would_notice_is_refused(url: str, folders: Path) -> None:
    with pytest.raises(UsageError, match=r"m is served now, .* would fail; give it a folder too, such as m=models/new"):
        ray_serve.deploy({"other": folders / "new"}, OPTIONS)
    port = int(url.rpartition(":")[2]) + 1
    with pytest.raises(UsageError, match=f"the server on this Ray listens on {url}; leave out host and port"):
        ray_serve.deploy({"m": folders / "new"}, ServeOptions(port=port))
    with pytest.raises(UsageError, match="there is nothing to serve on Ray"):
        ray_serve.deploy({}, OPTIONS)
    with pytest.raises(UsageError, match="not a folder, which is what replicas can open"):
        ray_serve.deploy({"m": bm25()}, OPTIONS)  # ty: ignore[invalid-argument-type]


def test_what_cannot_be_loaded_is_not_rolled_out(url: str, folders: Path) -> None:
    before = snapshot(url)
    with asking(url) as answers, pytest.raises(ServerError) as told:
        ray_serve.deploy({"m": folders / "broken"}, OPTIONS)
    assert "replicas cannot start" in told.value.problem
    assert "bytes" in told.value.problem, "the reason is that of the artifact"
    assert "the old ones go on" in told.value.hint
    assert {(status, name) for _, status, name in answers} == {(200, before)}


def test_no_request_fails_while_a_new_artifact_is_rolled_out(url: str, folders: Path) -> None:
    before = snapshot(url)
    with asking(url) as answers:
        assert ray_serve.deploy({"m": folders / "new"}, OPTIONS) == url
        done = time.monotonic()
        time.sleep(3)
    after = snapshot(url)
    assert before != after
    assert {status for _, status, _ in answers} == {200}
    assert {name for _, _, name in answers} == {before, after}
    assert {name for begun, _, name in answers if begun > done} == {after}
    hits = httpx.post(f"{url}/v1/search", json={"query": "zebra"}).json()["results"][0]["hits"]
    assert [hit["id"] for hit in hits] == ["zebra"]


def snapshot(url: str) -> str:
    return httpx.post(f"{url}/v1/search", json={"query": "water"}, timeout=30).json()["snapshot"]


Answer = tuple[float, int, str]


@contextmanager
def asking(url: str, clients: int = 4) -> Generator[list[Answer]]:
    """Clients that ask one request after the other: when each began, its status (0: none came), and the snapshot."""
    answers: list[Answer] = []
    enough = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not enough.is_set():
                begun = time.monotonic()
                try:
                    answer = client.post("/v1/search", json={"query": "water", "k": 3, "show": "ids"})
                    answers.append((begun, answer.status_code, answer.json().get("snapshot", answer.text)))
                except (httpx.HTTPError, ValueError) as error:
                    answers.append((begun, 0, repr(error)))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(answers) >= clients)
        yield answers
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def test_a_change_reaches_every_replica(url: str) -> None:
    body = {"documents": [{"id": "okapi", "text": "An okapi."}]}
    added = httpx.post(f"{url}/v1/documents", json=body, headers=HEADERS, timeout=30)
    assert (added.status_code, added.json()["saved"]) == (200, True)
    time.sleep(2)
    for _ in range(20):
        answer = httpx.post(f"{url}/v1/search", json={"query": "okapi"}, timeout=30).json()
        assert [hit["id"] for hit in answer["results"][0]["hits"]] == ["okapi"]


def test_shards_are_in_processes_of_their_own(url: str, folders: Path) -> None:
    ray_serve.deploy({"m": folders / "shards"}, OPTIONS)
    answer = httpx.post(f"{url}/v1/search", json={"query": "zebra", "show": "text"}, timeout=30).json()
    hits = [(hit["id"], hit["text"]) for hit in answer["results"][0]["hits"]]
    assert hits == [("zebra", "A zebra drinks water.")]
    assert len(processes_of_this("ray::Holder")) == 2 * OPTIONS.workers


def processes_of_this(name: str, root: int | None = None) -> list[int]:
    """The processes with this name that a process has started, or those that it started."""
    return [number for number, words in descendants(root or os.getpid()) if words.startswith(name)]


def descendants(root: int) -> list[tuple[int, str]]:
    """Processes that stand below one, each with its command line."""
    parents: dict[int, int] = {}
    words: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue

    def stands_below(number: int) -> bool:
        return number in parents and (parents[number] == root or stands_below(parents[number]))

    return [(number, words.get(number, "")) for number in parents if stands_below(number)]


@contextmanager
def command(*words: str) -> Generator[tuple[subprocess.Popen[str], list[str]]]:
    """`triever serve --on ray` in a process of its own, once it listens; and all that it has said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "triever.cli", "serve", *words, "--on", "ray"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    reading = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    reading.start()
    try:
        until(lambda: any("to roll out" in line for line in said) or process.poll() is not None, 120)
        yield process, said
    finally:
        process.terminate()
        process.wait(60)
        reading.join(10)


def test_the_command_serves_and_rolls_out_until_it_is_ended(folders: Path) -> None:
    with command(f"m={folders / 'old'}", "--port", "0") as (process, said):
        text = "".join(said)
        url = re.findall(r"^listening on (http://127\.0\.0\.1:\d+)$", text, re.MULTILINE)[0]
        before = snapshot(url)
        shown = re.findall(r"(RAY_AUTH_MODE=\w+) (RAY_ADDRESS=127\.0\.0\.1:\d+) triever serve", text)[0]
        family = [number for number, _ in descendants(process.pid)]
        replicas = processes_of_this("ray::ServeReplica", process.pid)
        assert len(replicas) == 1
        assert reached_from_elsewhere({*family} - {*replicas}) == set()

        again = [sys.executable, "-m", "triever.cli", "serve", f"m={folders / 'new'}", "--on", "ray"]
        environment = os.environ | dict(setting.split("=") for setting in shown)
        with asking(url) as answers:  # the only replica goes on until another one is there
            done = subprocess.run(again, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"rolled out on {url}, with 1 replica: m" in done.stderr
        assert {status for _, status, _ in answers} == {200}
        assert snapshot(url) != before
        until(lambda: len(processes_of_this("ray::ServeReplica", process.pid)) == 1, 40)
        assert processes_of_this("ray::ServeReplica", process.pid) != replicas

        family = [number for number, _ in descendants(process.pid)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        until(lambda: not any(Path(f"/proc/{number}").exists() for number in family), 30)
    assert "Traceback" not in "".join(said)


def reached_from_elsewhere(numbers: set[int]) -> set[str]:
    """Addresses other than those of this machine for itself that these processes listen on."""
    own = set()
    for number in numbers:
        for path in Path(f"/proc/{number}/fd").glob("*"):
            try:
                own.add(os.readlink(path))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[column] for column in (1, 3, 9))
            host = local.partition(":")[0]
            if state == "0A" and f"socket:[{inode}]" in own and not host.endswith("0100007F"):
                found.add(local)
    return found
