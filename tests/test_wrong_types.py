"""Every public name with values of the wrong type: what is refused is refused with a sentence, and never raw."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, dataset
from triever import BM25, Dataset, Document, Query, Report, Retriever, TrieverError, UsageError
from triever.data.store import SCHEMA, DocumentStore

LONG = "x" * 5000
ODD: tuple[Any, ...] = (
    *(None, 5, -1, 0.5, float("nan"), True, "x", "", " ", LONG, "a\0b", "\ud800", b"x", object(), object, len),
    *([], [5], [None], ["x"], [b"x"], [[]], (), {}, {"x": 5}, {5: "x"}, {"x": {"y": "z"}}, {"x": None}, range(3)),
    *(Path("x" * 300), Path("a\0b"), Document("d", "t"), Query("q", "t"), [Document("d", "t")] * 2),
)

TINY = "scratch:hidden=32,layers=1,heads=2,vocabulary=400"

Call = Callable[..., Any]


def each(call: Call, usual: dict[str, Any], odd: tuple[Any, ...] = ODD) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The call with each argument in turn of each odd value, and the others as they should be."""
    for name, value in ((name, value) for name in usual for value in odd):
        yield f"{name}={value!r:.40}", lambda name=name, value=value: call(**{**usual, name: value})


def check(calls: Iterator[tuple[str, Callable[[], Any]]]) -> None:
    raw = [f"{what}: {problem}" for what, call in calls if (problem := problem_of(call))]
    assert not raw, "\n" + "\n".join(raw)


def problem_of(call: Callable[[], Any]) -> str:
    """What is wrong with how a call ends: an error that is not ours, or that does not say what to do."""
    try:
        call()
    except TrieverError as error:
        return "" if error.hint else f"{error} does not say what to do"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.80}"
    return ""


def fields_of(cls: Any) -> dict[str, Any]:
    """The options of a dataclass with their defaults."""
    return {
        field.name: field.default
        for field in dataclasses.fields(cls)
        if field.init and field.default is not dataclasses.MISSING
    }


def fitted() -> Retriever:
    return BM25().fit(dataset())


@functools.cache
def with_docids() -> Retriever:
    nothing = triever.DocidTuning(steps=0)
    return triever.Generative(docids=triever.Naive(), backbone=TINY, training=nothing).fit(dataset())


def report() -> Report:
    return Report.of({"a": {"nDCG@10": {"q": 0.5}}, "b": {"nDCG@10": {"q": 0.25}}})


CLOSED = "http://127.0.0.1:9"
RUN = {"q1": {"tea": 1.0, "bread": 0.5}}
ERRORS = {
    name
    for name in triever.__all__
    if inspect.isclass(getattr(triever, name)) and issubclass(getattr(triever, name), Exception)
}
OPTIONS = {
    *("AdapterOptions", "Answerer", "ReaderTuning", "Cut", "ReAtt", "ReAttShape", "ReAttTuning"),
    *("Atomic", "BM25", "Cluster", "ClusterNegatives", "Codebook", "Contextual", "ContrastTuning", "DecoderOptions"),
    *(
        "Dense",
        "DocidTuning",
        "Fused",
        "GDR",
        "Generative",
        "GivenDocids",
        "GivenRun",
        "GivenVectors",
        "IndexOptions",
        "LossWeights",
        "MatchOptions",
        "MultiVector",
    ),
    *("Naive", "Negatives", "QueryWriter", "Reranked", "RerankTuning", "SearchOptions", "Semantic", "SpellingOptions"),
    *("Title", "TokenOptions", "Tuning", "VectorFile", "ViewOptions", "VocabularyOptions", "WriterTuning"),
}
RECORDS = {"Answer", "DocidBranch", "DocidNode", "Explanation", "Hit", "Remote", "Result", "Source"}
"""What searches and connections make, by the million: nobody else has to, and nothing is checked."""
CALLS: dict[str, Callable[[Path], list[tuple[Call, dict[str, Any]]]]] = {
    "Document": lambda _: [(Document, {"id": "d", "text": "t", "title": "", "expansions": (), "metadata": {}})],
    "Query": lambda _: [(Query, {"id": "q", "text": "t", "answers": (), "evidence": (), "metadata": {}})],
    "Dataset": lambda _: [
        (
            Dataset.of,
            {"name": "n", "documents": DOCUMENTS, "queries": QUERIES, "qrels": {"test": QRELS}, "unjudged": {}},
        ),
        (lambda **words: [*dataset().with_expansions(**words).documents()], {"source": {"tea": ["x"]}}),
        (dataset().queries, {"split": "test"}),
        (dataset().qrels, {"split": "test"}),
    ],
    "Retriever": lambda folder: [
        (lambda **words: BM25().fit(**words), {"dataset": dataset()}),
        (lambda **words: fitted().search(**words), {"query": "tea", "k": 3}),
        (lambda **words: fitted().search_many(**words), {"queries": ["tea"], "k": 3}),
        (lambda **words: fitted().explain(**words), {"query": "tea", "k": 3}),
        (lambda **words: with_docids().browse(**words), {"prefix": (), "samples": 3, "offset": 0, "limit": 10}),
        (lambda **words: fitted().add(**words), {"documents": [Document("n", "new")]}),
        (lambda **words: fitted().delete(**words), {"ids": ["tea"]}),
        (lambda **words: fitted().searched_with(**words), {"values": {}}),
        (lambda **words: fitted().memory_for(**words), {"documents": 5}),
        (lambda **words: fitted().compared(**words), {"queries": ["tea"], "k": 3}),
        (lambda **words: fitted().save(**words), {"path": folder / "m", "shards": 2}),
    ],
    "Report": lambda folder: [
        (Report.of, {"values": {"a": {"nDCG@10": {"q": 0.5}}}, "baseline": "a", "extra": {}, "title": "", "about": {}}),
        (Report.from_dict, {"data": report().to_dict()}),
        (report().per_query, {"system": "a", "measure": "nDCG@10"}),
        (report().worst, {"system": "a", "measure": "nDCG@10", "n": 3}),
        (report().best, {"measure": "nDCG@10"}),
        (report().plot, {"path": folder / "r.svg"}),
    ],
    "compare": lambda _: [
        (
            triever.compare,
            {"retrievers": {"a": fitted()}, "dataset": dataset(), "split": "test", "measures": ["nDCG@10"], "k": 3}
            | {"baseline": None},
        )
    ],
    "evaluate": lambda _: [
        (
            triever.evaluate,
            {"run": RUN, "qrels": QRELS, "measures": ["nDCG@10"], "name": "run", "queries": QUERIES, "texts": None},
        )
    ],
    "connect": lambda _: [(triever.connect, {"url": "http://127.0.0.1:9", "key": "k", "timeout": 1})],
    "load": lambda _: [(triever.load, {"path": "nothing", "backbone": "nowhere", "on": "ray"})],
    "edit": lambda folder: [
        (lambda **words: edited(folder, **words), {"path": folder / "e", "wait": 0, "backbone": None})
    ],
    "pack": lambda folder: [(triever.pack, {"model": packed(folder).with_suffix(""), "out": folder / "p.zip"})],
    "unpack": lambda folder: [(triever.unpack, {"path": packed(folder), "out": folder / "u", "replace": True})],
    "push": lambda folder: [
        (
            triever.push,
            {"model": packed(folder).with_suffix(""), "repository": "a/b", "revision": "main", "endpoint": CLOSED},
        )
    ],
    "pull": lambda folder: [
        (triever.pull, {"repository": "a/b", "out": folder / "l", "revision": "main", "endpoint": CLOSED})
    ],
    "load_dataset": lambda _: [(triever.load_dataset, {"name_or_path": "python"})],
}


def packed(folder: Path) -> Path:
    fitted().save(folder / "packed")
    return triever.pack(folder / "packed", folder / "packed.zip")


def edited(folder: Path, **words: Any) -> None:
    if not (folder / "e").exists():
        fitted().save(folder / "e")
    with triever.edit(**words):
        pass


def test_every_public_name_is_tried() -> None:
    known = {*ERRORS, *OPTIONS, *RECORDS, *CALLS, "__version__"}
    assert known == set(triever.__all__)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_options(name: str) -> None:
    cls = getattr(triever, name)
    check(each(cls, fields_of(cls)))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call, usual in CALLS[name](tmp_path):
        call(**usual) if name not in ("load", "connect", "push", "pull") else None  # there is nothing
        check(each(call, usual))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: fitted().add(Document("n", "x")),
            r"add takes a list of documents, not Document; put a single one into a list: add\(\[",
        ),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().add([1]), "add takes documents, but one of them is 1; give triever.Document"),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().add(None), "add takes a list of documents, not NoneType"),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().search(b"x"), "b'x' is not text; ids and texts are strings"),  # ty: ignore[invalid-argument-type]
        (
            lambda: fitted().search_many(Query("q", "x")),
            "search_many takes a list of queries, not Query; for a single query",
        ),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().delete(5), "delete takes a list of ids, not int"),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().delete([5]), "delete takes ids, but one of them is 5; give strings"),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().save(5), "5 is not a path; give a string or a pathlib.Path"),  # ty: ignore[invalid-argument-type]
        (lambda: fitted().save("a\0b"), "holds a NUL character or half of a surrogate pair; rename it"),
        (lambda: fitted().save("x" * 5000), "is too long; give a shorter path"),
        (lambda: triever.load_dataset("x" * 5000), "is too long; give a shorter path"),
        (lambda: Dataset.of("n", [1]), "Dataset.of takes documents, but one of them is 1"),  # ty: ignore[invalid-argument-type]
        (lambda: Dataset.of("n", DOCUMENTS, QUERIES, QRELS), "should be a mapping"),  # ty: ignore[invalid-argument-type]
        (lambda: Document("d", None), "None is not text"),  # ty: ignore[invalid-argument-type]
        (lambda: Document("d", "t", expansions="one"), r"expansions = 'one' should be a tuple of texts; for example: "),  # ty: ignore[invalid-argument-type]
        (lambda: Document("d", "t", metadata=[1]), r"metadata = \[1\] should be a mapping"),  # ty: ignore[invalid-argument-type]
        (
            lambda: Document("d", "t", metadata={"x": {1, 2}}),
            "the metadata of d cannot be written as JSON: .* set .*; use",
        ),
        (lambda: triever.compare({"a": 5}, dataset()), "'a' is 5, not a retriever"),  # ty: ignore[invalid-argument-type]
        (lambda: triever.compare({"a": fitted()}, "toy"), "compare takes a Dataset, not str"),  # ty: ignore[invalid-argument-type]
        (lambda: triever.evaluate(RUN, QRELS, "nDCG@10"), "measures = 'nDCG@10' should be a list"),
    ],
)
def test_what_is_said(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.parametrize("record", [Document, Query])
@pytest.mark.parametrize("key", ["", "  ", "a\tb", "a\nb", "a\u2028b", "a\0b", "a\ud800", None, 5, b"x"])
def test_an_id_that_no_file_could_carry_is_refused_at_once(record: Callable[..., Any], key: Any) -> None:
    with pytest.raises(
        UsageError, match=r"empty|tab or line break|NUL character or half of a surrogate pair|is not text"
    ):
        record(key, "text")


def test_an_id_of_an_earlier_version_is_still_read() -> None:
    rows = [{"id": "a\tb", "title": "", "text": "x", "expansions": [], "metadata": ""}]
    (document,) = DocumentStore(pa.Table.from_pylist(rows, SCHEMA))
    assert document.id == "a\tb"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), plain | st.sets(st.integers()) | st.binary(), max_size=4))
@example({"x": math.nan})
@example({"x": (math.inf, 10**400)})
@example({"x": 10**5000})
def test_metadata_are_taken_if_they_can_be_written(metadata: dict[str, Any]) -> None:
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError):
        with pytest.raises(UsageError, match="cannot be written as JSON"):
            Document("d", "t", metadata=metadata)
    else:
        assert Document("d", "t", metadata=metadata).metadata is metadata
