"""A disk that is full, a place that may not be written, and a name that is too long: a sentence, and nothing half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import triever
from triever import DataError, Dataset, Document, Hit, Query, Report, Result, TrieverError
from triever.data.writers import write_dataset, write_documents, write_qrels, write_queries, write_run
from triever.evaluation.finding import Finding
from triever.evaluation.picture import Bars
from triever.lab import results

resource: Any = pytest.importorskip("resource", reason="Windows has no limits of this kind")

LIMIT = 2000
TEXTS = [os.urandom(1500).hex() for _ in range(20)]
DOCUMENTS = [Document(str(at), text) for at, text in enumerate(TEXTS)]
QUERIES = [Query(text[:60], text) for text in TEXTS]
QRELS = {query.id: {f"{document.id}-{query.id}": 1 for document in DOCUMENTS} for query in QUERIES}
RUN = {query.id: Result(tuple(Hit(key, 1.0) for key in QRELS[query.id])) for query in QUERIES}
DATA = Dataset.of("large", DOCUMENTS, QUERIES, {"test": QRELS})
REPORT = Report.of({"a": {"nDCG@10": {"q": 0.5}}, "b": {"nDCG@10": {"q": 0.25}}})
FINDING = Finding({}, (), (Bars("title", ("label",), {"series": (1.0,)}),))

WRITERS: dict[str, Callable[[Path], None]] = {
    **{
        f"documents{ending}": lambda folder, ending=ending: write_documents(folder / f"x{ending}", DOCUMENTS)
        for ending in (".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".parquet")
    },
    "queries": lambda folder: write_queries(folder / "x.jsonl", QUERIES),
    "qrels": lambda folder: write_qrels(folder / "x.tsv", QRELS),
    "run": lambda folder: write_run(folder / "x.run", RUN),
    "run.gz": lambda folder: write_run(folder / "x.run.gz", RUN),
    **{
        f"dataset as {to}": lambda folder, to=to: write_dataset(folder / "x", DATA, to=to)
        for to in ("beir", "parquet", "msmarco")
    },
    **{f"plot.{kind}": lambda folder, kind=kind: REPORT.plot(folder / f"x.{kind}") for kind in ("png", "svg", "pdf")},
    "bars": lambda folder: FINDING.plot(folder / "x.png"),
    "result": lambda folder: results.write(folder / "x.json", {"texts": TEXTS}),
}


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    REPORT.plot(tmp_path_factory.mktemp("warm") / "x.png")  # matplotlib keeps a list of fonts in a file


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Files of this process cannot grow beyond some bytes."""
    before, usual = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, usual)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_cannot_grow(tmp_path: Path, writer: str) -> None:
    with pytest.raises(DataError, match="cannot be written: File too large; allow larger files"):
        WRITERS[writer](tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize(
    "write", [lambda to: write_run(to, RUN), lambda to: write_qrels(to, QRELS), lambda to: results.write(to, {})]
)
def test_a_device_that_is_full(write: Callable[[str], None]) -> None:
    with pytest.raises(DataError, match="/dev/full cannot be written: No space left on device; make room on its disk"):
        write("/dev/full")


@pytest.mark.parametrize("writer", WRITERS)
def test_a_place_that_is_none(tmp_path: Path, writer: str) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / ("x" * 300), tmp_path / "a\0b", Path("/proc/nothing")):
        with pytest.raises(TrieverError, match="; ") as refused:
            WRITERS[writer](place)
        assert refused.value.hint
    assert os.listdir(tmp_path) == ["file"]


READERS = """
import os, sys
from pathlib import Path
import triever
from triever.data.readers import read_documents, read_qrels, read_queries, read_run
from triever.lab.results import render
from triever.config import read_toml
os.setuid(65534)
folder = Path(sys.argv[1])
raw = []
def attempt(what, call):
    try:
        call()
        raw.append(f"{what}: no error")
    except triever.TrieverError as error:
        if not error.hint:
            raw.append(f"{what}: {error} has no hint")
    except Exception as error:
        raw.append(f"{what}: {error!r}")
for place in (folder / "closed" / "x.jsonl", folder / "unread.jsonl"):
    attempt("load_dataset", lambda: triever.load_dataset(place))
    attempt("load_dataset text", lambda: triever.load_dataset(str(place)))
    for read in (read_documents, read_qrels, read_queries, read_run):
        attempt(read.__name__, lambda: list(read(place)))
    attempt("expansions", lambda: triever.Dataset.of("x", []).with_expansions(place))
    attempt("toml", lambda: read_toml(place))
attempt("results", lambda: render(folder / "results"))
attempt("plot", lambda: triever.Report.of({"a": {"m": {"q": 1.0}}}).plot(folder / "closed" / "x.png"))
print(raw)
"""


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="becomes somebody else to be refused something")
def test_what_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "results").mkdir()
    for name in ("closed/x.jsonl", "unread.jsonl", "results/x.json"):
        (tmp_path / name).write_text('{"_id": "x", "text": "y"}\n')
        (tmp_path / name).chmod(0o600)
    for folder in (tmp_path, tmp_path / "results", *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    source = Path(triever.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source), "MPLCONFIGDIR": str(tmp_path)}
    command = [sys.executable, "-c", READERS, str(tmp_path)]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip("others may not read this checkout")
    assert done.stdout == "[]\n", done.stdout + done.stderr
