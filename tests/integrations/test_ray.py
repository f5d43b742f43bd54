"""Shards and encoding on Ray: what one process gives, also when a process is killed; and nothing is reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WHY = "shards on Ray are tested where that is installed: make test-all"
pytest.importorskip("ray", reason=WHY)

import ray  # noqa: E402

import triever  # noqa: E402
from tests.golden import make_artifacts as golden  # noqa: E402
from tests.retrievers.test_shards import HALVES, check_all, fitted  # noqa: E402
from triever import ArtifactError, Dense, Document, MultiVector, UsageError, artifact  # noqa: E402
from triever.data.shard_documents import DOCUMENTS  # noqa: E402
from triever.integrations.ray import BlockWorker, RayShards, RayWorkers, ray_shards  # noqa: E402
from triever.models.elsewhere import Block, elsewhere  # noqa: E402
from triever.shards import Bounds  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two processors, as many as the smallest machine has."""
    source = Path(triever.__file__).parent.parent
    variables = {"PYTHONPATH": os.pathsep.join([str(source), str(source.parent)]), "OMP_NUM_THREADS": "1"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    yield
    ray.shutdown()


def shards_of(retriever: triever.Retriever) -> RayShards:
    shards = retriever._checked().shards
    assert isinstance(shards, RayShards)
    return shards


KINDS = ["bm25_passages", "multivector", "gdr", "fused", "generative_codebook"]


@pytest.mark.parametrize("name", KINDS)
def test_shards_in_other_processes_find_the_same(name: str, tmp_path: Path) -> None:
    whole = fitted(name)
    whole.save(tmp_path / "shards", shards=2)
    mine = triever.load(tmp_path / "shards", on="ray")
    for where in (None, HALVES, {"few": True}):
        check_all(mine, whole, k=5, where=where)
    assert os.getpid() not in shards_of(mine).pids()
    assert mine.fingerprint == whole.fingerprint
    assert [*mine.documents] == [*whole.documents]
    own, expected = (retriever.explain(golden.QUERIES[1], 3) for retriever in (mine, whole))
    for parts, others in zip(own.parts, expected.parts, strict=True):
        assert dict(parts) == pytest.approx(dict(others), rel=1e-5, abs=1e-6)


def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    fitted("bm25").save(tmp_path / "shards", shards=2)
    mine = triever.load(tmp_path / "shards", on="ray")
    before = shards_of(mine).pids()
    os.kill(before[1], signal.SIGKILL)
    check_all(mine, fitted("bm25"), k=5)
    after = shards_of(mine).pids()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_texts_are_not_here(tmp_path: Path) -> None:
    fitted("bm25").save(tmp_path / "shards", shards=2)
    memory = triever.load(tmp_path / "shards", on="ray").memory
    assert memory.get("texts", 0) == 0
    assert memory.get("postings", 0) == 0
    assert memory["ids"] > 0


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    fitted("bm25").save(tmp_path / "whole")
    with pytest.raises(UsageError, match=r"is not in shards.*put it into shards first: triever shard"):
        triever.load(tmp_path / "whole", on="ray")
    with pytest.raises(UsageError, match="shards cannot be opened on 'rya'; did you mean ray"):
        triever.load(tmp_path / "whole", on="rya")


def test_a_folder_that_is_another_elsewhere_is_refused(tmp_path: Path) -> None:
    fitted("bm25").save(tmp_path / "shards", shards=2)
    snapshot = artifact.read(tmp_path / "shards")
    bounds = Bounds((0, 20, 40), (0, 20, 40))
    fitted("bm25").save(tmp_path / "shards", shards=4)
    with pytest.raises(ArtifactError, match="is another retriever on the machine of shard 0, or was replaced"):
        ray_shards(snapshot, bounds).ask(DOCUMENTS, "columns", [(["id"],)] * 2, [None, None])


def corpus(count: int) -> triever.Dataset:
    chance = np.random.default_rng(7)
    return triever.Dataset.of(
        "drawn",
        [Document(f"d{at}", " ".join(chance.choice(golden.LANGUAGE, chance.integers(1, 40)))) for at in range(count)],
    )


def vectors(retriever: Any) -> list[np.ndarray]:
    index = retriever.engine.index
    return [index.vectors()] if isinstance(retriever, Dense) else [index.main.part.packed, index.main.part.numbers]


@pytest.mark.parametrize("make", [lambda: golden.dense(), lambda: MultiVector(backbone=golden.TINY, size=4)])
def test_what_workers_encode_has_the_same_bytes(make: Any, tmp_path: Path) -> None:
    data = corpus(4000)
    plain = make().fit(data)
    with elsewhere(RayWorkers(tmp_path / "encoding", workers=2, least=1000)):
        mine = make().fit(data)
    for own, expected in zip(vectors(mine), vectors(plain), strict=True):
        assert own.tobytes() == expected.tobytes()
    assert not (tmp_path / "encoding").exists()


def test_a_fit_goes_on_when_a_worker_is_killed(tmp_path: Path) -> None:
    data, killed = corpus(20_000), []

    def kill() -> None:
        """Kill the first process that works once something is made."""
        until = time.monotonic() + 120
        while time.monotonic() < until and not killed:
            if len([*(tmp_path / "encoding").glob("encoding-*/*.npz")]) >= 2 and (found := working()):
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
            time.sleep(0.05)

    plain = golden.dense().fit(data)
    thread = threading.Thread(target=kill)
    thread.start()
    with elsewhere(RayWorkers(tmp_path / "encoding", workers=2)):
        mine = golden.dense().fit(data)
    thread.join()
    assert killed, "all was made before somebody could be killed"
    assert vectors(mine)[0].tobytes() == vectors(plain)[0].tobytes()


def working() -> list[int]:
    """The processes of Ray that encode, by the name that Ray gives them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if words.startswith("ray::") and BlockWorker.__name__ in words and is_ours(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


def is_ours(number: int) -> bool:
    """Whether this process has started a process, or the one that started it: nobody else's is killed."""
    while number > 1:
        if number == os.getpid():
            return True
        try:
            number = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def test_what_was_made_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = corpus(6000), []
    make = RayWorkers.work

    def interrupted(self: RayWorkers, task: Any, blocks: Iterable[Block], label: str) -> None:
        every = [*blocks]
        asked.append(len(every))
        make(self, task, every[: len(every) // 2] if len(asked) == 1 else every, label)
        if len(asked) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(RayWorkers, "work", interrupted)
    with pytest.raises(KeyboardInterrupt), elsewhere(RayWorkers(tmp_path / "encoding", workers=2)):
        golden.dense().fit(data)
    with elsewhere(RayWorkers(tmp_path / "encoding", workers=2)):
        mine = golden.dense().fit(data)
    assert asked[1] == asked[0] - asked[0] // 2
    assert vectors(mine)[0].tobytes() == vectors(golden.dense().fit(data))[0].tobytes()


REPORTED = """
import json, os
import triever.integrations.ray
from ray._common.usage import usage_lib
print(json.dumps([usage_lib.usage_stats_enabled(), os.environ["RAY_USAGE_STATS_ENABLED"]]))
"""


@pytest.mark.parametrize(("said", "expected"), [(None, [False, "0"]), ("1", [True, "1"])])
def test_nothing_is_reported_unless_somebody_wants_it(said: str | None, expected: list[Any]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "RAY_USAGE_STATS_ENABLED"}
    environment |= {"RAY_USAGE_STATS_ENABLED": said} if said else {}
    done = subprocess.run([sys.executable, "-c", REPORTED], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_a_fit_on_ray_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from triever.cli import main

    lines = [json.dumps({"_id": document.id, "text": document.text}) for document in corpus(3000).documents()]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = ["fit", "dense", "--data", str(tmp_path / "documents.jsonl"), "--set", f"backbone={golden.TINY}"]
    for name, more in (("plain", []), ("ray", ["--on", "ray", "--workers", "2"])):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--out", str(tmp_path / name), *more])
        assert ended.value.code == 0, capsys.readouterr().err
    files = [{path.name for path in (tmp_path / name).glob("vectors*")} for name in ("plain", "ray")]
    assert files[0] == files[1]  # files are named by their content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl", "plain", "ray"]
