"""Shards, encoding and training on Ray give what is found without it, though a process is killed; nothing is reported.

What is true of every place of work, such as what an interrupted work leaves to do, is tested without Ray:
tests/models/test_elsewhere.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WHY = "shards on Ray are tested where that is installed: make test-all"
pytest.importorskip("ray", reason=WHY)

import ray  # noqa: E402

import triever  # noqa: E402
from tests.golden import make_artifacts as golden  # noqa: E402
from tests.models.causal import save_causal  # noqa: E402
from tests.retrievers.contract import dataset  # noqa: E402
from tests.retrievers.test_shards import HALVES, check_all, fitted  # noqa: E402
from tests.training import toys  # noqa: E402
from tests.training.test_processes import begin_both  # noqa: E402
from triever import (  # noqa: E402
    ArtifactError,
    Contextual,
    Dense,
    Document,
    MultiVector,
    QueryWriter,
    TrieverError,
    UsageError,
    artifact,
)
from triever.data.shard_documents import DOCUMENTS  # noqa: E402
from triever.data.store import DocumentStore  # noqa: E402
from triever.data.writers import write_dataset  # noqa: E402
from triever.errors import ServerError  # noqa: E402
from triever.integrations.ray import BlockWorker, RayShards, RayWorkers, ray_shards  # noqa: E402
from triever.integrations.ray_train import call_together, raise_unless_lost  # noqa: E402
from triever.learning.teachers import Teacher  # noqa: E402
from triever.models.elsewhere import elsewhere  # noqa: E402
from triever.queries.query_files import write_file  # noqa: E402
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
    if isinstance(retriever, Contextual):
        return [retriever.engine.docids.model.symbols.weight.detach().numpy(), retriever.engine.spellings.start]
    index = retriever.engine.index
    return [index.vectors()] if isinstance(retriever, Dense) else [index.main.part.packed, index.main.part.numbers]


@pytest.mark.parametrize("make", [lambda: MultiVector(backbone=golden.TINY, size=4), golden.RETRIEVERS["contextual"]])
def test_what_workers_encode_has_the_same_bytes(make: Any, tmp_path: Path) -> None:
    data = corpus(3000)
    plain = make().fit(data)
    with elsewhere(RayWorkers(tmp_path / "work", workers=2, least=1000)):
        mine = make().fit(data)
    for own, expected in zip(vectors(mine), vectors(plain), strict=True):
        assert own.tobytes() == expected.tobytes()
    assert not (tmp_path / "work").exists()


@contextmanager
def one_killed(folder: Path, pattern: str) -> Iterator[None]:
    """Kill the first process that works once some files are made."""
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not killed:
            if len([*folder.glob(pattern)]) >= 2 and (found := working()):
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()
    assert killed, "all was made before somebody could be killed"


def test_a_fit_goes_on_when_a_worker_is_killed(tmp_path: Path) -> None:
    data = corpus(20_000)
    plain = golden.dense().fit(data)
    with one_killed(tmp_path / "work", "encoding-*/*.npz"), elsewhere(RayWorkers(tmp_path / "work", workers=2)):
        mine = golden.dense().fit(data)
    assert vectors(mine)[0].tobytes() == vectors(plain)[0].tobytes()


def test_questions_are_written_though_a_worker_is_killed(tmp_path: Path) -> None:
    data = corpus(400)
    writer = QueryWriter(backbone=str(save_causal(tmp_path / "llama")), per_document=3, query_length=8, batch=8)
    write_file(writer, data, tmp_path / "here.jsonl")
    with one_killed(tmp_path / "there.jsonl.work", "*.jsonl"), elsewhere(RayWorkers(tmp_path / "work", workers=2)):
        write_file(writer, data, tmp_path / "there.jsonl")
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.jsonl", "llama", "there.jsonl"]


def test_what_is_wrong_with_a_worker_is_told_in_a_sentence(tmp_path: Path) -> None:
    llama = str(save_causal(tmp_path / "llama"))
    writer = QueryWriter(backbone=llama, per_document=3, query_length=8, filter=str(tmp_path / "none"))
    with pytest.raises(TrieverError, match="none"), elsewhere(RayWorkers(tmp_path / "work", workers=1)):
        write_file(writer, corpus(300), tmp_path / "there.jsonl")


class Killed(BaseException):
    """What ends a worker in the middle of a block."""


class Deadly:
    """A task that no worker survives."""

    def begin(self, device: str) -> Any:
        raise Killed(device)


def test_a_block_that_no_worker_survives_is_given_up(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "block")
    rows = pa.table({"asked": [str(tmp_path / "block")], "file": [str(tmp_path / "never")]})
    for _ in range(4):
        with pytest.raises(Killed):
            BlockWorker(Deadly())(rows)
    [problem] = BlockWorker(Deadly())(rows).to_pylist()
    assert problem["problem"] == "4 workers have died of the same block"


def test_a_teacher_is_asked_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = corpus(500)
    store = DocumentStore.of(data.documents())
    store.fingerprint = data.fingerprint
    texts = [document.text for document in corpus(3000).documents()]
    asked = []
    for place in (None, RayWorkers(tmp_path / "work", workers=2)):
        monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path / f"cache{len(asked)}"))
        with elsewhere(place):
            opinions = Teacher(golden.dense(), data, store, None).opinions(texts)
        asked.append([opinions.rows.tobytes(), opinions.scores.tobytes()])
    assert asked[0] == asked[1]


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


def losing_one(folder: str) -> None:
    """A training in several processes, of which one dies in the middle, once."""
    died, worth, evaluations = Path(folder) / "died", toys.worth, []

    def evaluate(model: Any) -> dict[str, float]:
        evaluations.append(model)
        if len(evaluations) == 2 and os.environ["RANK"] == "1" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return worth(model)

    toys.worth = evaluate
    toys.shared_training(Path(folder))


def test_ray_starts_the_training_that_torchrun_starts(root: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "torchrun", tmp_path / "ray"]
    for folder in folders:
        folder.mkdir()
    begin_both(root, folders[0])
    call_together(losing_one, {"folder": str(folders[1])}, 2, tmp_path / "notes")
    assert (folders[1] / "died").exists()
    for rank in (0, 1):
        theirs, mine = ((folder / f"weights-{rank}-of-2.json").read_text() for folder in folders)
        assert mine == theirs
    assert not (tmp_path / "notes").exists()


def test_what_a_process_says_is_raised_and_what_was_lost_begins_again() -> None:
    wrong = UsageError("a batch of 3 cannot be shared", "make it 4")
    with pytest.raises(UsageError) as told:
        raise_unless_lost(TrainingFailed({0: RuntimeError("gone"), 1: wrong}), again=True)
    assert told.value is wrong
    raise_unless_lost(TrainingFailed({0: RuntimeError("gone")}), again=True)
    with pytest.raises(ServerError, match="cannot train: gone"):
        raise_unless_lost(TrainingFailed({0: RuntimeError("gone")}), again=False)


class TrainingFailed(Exception):
    """An error of Ray Train, with what each process says."""

    def __init__(self, worker_failures: dict[int, Exception]) -> None:
        super().__init__("training failed")
        self.worker_failures = worker_failures


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


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    from triever.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*words])
    return ended.value.code, capsys.readouterr().err


def test_a_fit_on_ray_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"_id": document.id, "text": document.text}) for document in corpus(3000).documents()]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = ["fit", "dense", "--data", str(tmp_path / "documents.jsonl"), "--set", f"backbone={golden.TINY}"]
    for name, more in (("plain", []), ("ray", ["--on", "ray", "--workers", "2"])):
        code, told = command(capsys, *words, "--out", str(tmp_path / name), *more)
        assert code == 0, told
    files = [{path.name for path in (tmp_path / name).glob("vectors*")} for name in ("plain", "ray")]
    assert files[0] == files[1]  # files are named by their content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl", "plain", "ray"]


def test_a_fit_in_two_processes_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "toy", dataset())
    words = ["fit", "dense", "--data", str(tmp_path / "toy"), "--on", "ray", "--processes", "2"]
    words += ["--set", f"backbone={golden.TINY}", "--set", "training.steps=4"]
    code, told = command(capsys, *words, "--set", "training.batch=4", "--out", str(tmp_path / "model"))
    assert code == 0, told
    assert f"wrote {tmp_path / 'model'}: dense with" in told, "the first process is not heard"
    assert len(triever.load(tmp_path / "model")) == len([*dataset().documents()])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "toy"]
