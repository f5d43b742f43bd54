"""Writing: what is written is read back the same, and files appear whole or not at all."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.dataset import Dataset
from triever.data.datasets import load_dataset
from triever.data.readers import read_documents, read_qrels, read_queries, read_run
from triever.data.records import Document, Hit, Query, Result, normalise, ranked
from triever.data.writers import (
    write_dataset,
    write_documents,
    write_qrels,
    write_queries,
    write_run,
)
from triever.errors import DataError, UsageError
from triever.files import atomic

# Any text that JSON and UTF-8 can carry, and ids of every script: CJK, combining marks, right to left, spaces.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
BREAKS = "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0"
ID = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=BREAKS), min_size=1),
    st.text("猫犬かな한국éüßأرنبשלום e\u0301\u0323 \xa0\u3000'\"\\", min_size=1),
).filter(lambda text: text.strip() != "" and text[0] != "\ufeff")  # which would be a byte order mark
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
METADATA = st.dictionaries(TEXT.filter(lambda key: key not in ("answers", "evidence")), JSON, max_size=3)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
DOCUMENT = st.builds(Document, ID, TEXT, TEXT, TEXTS, METADATA)
EVIDENCE = st.lists(st.lists(ID, max_size=2).map(tuple), max_size=2).map(tuple)
QUERY = st.builds(Query, ID, TEXT, TEXTS, EVIDENCE, METADATA)
DOCUMENTS = st.lists(DOCUMENT, min_size=1, max_size=5, unique_by=lambda record: record.id)
QUERIES = st.lists(QUERY, min_size=1, max_size=5, unique_by=lambda record: record.id)
GRADE = st.integers(-(2**31) + 1, 2**31 - 1)
SCORE = st.floats(allow_nan=False, allow_infinity=False)


def normal_ids(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(ID.map(normalise), values, min_size=1, max_size=4)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"])
@given(documents=DOCUMENTS)
def test_documents_come_back(ending: str, documents: list[Document]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"corpus{ending}")
        write_documents(path, documents)
        assert list(read_documents(path)) == documents


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"])
@given(queries=QUERIES)
def test_queries_come_back(ending: str, queries: list[Query]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"queries{ending}")
        write_queries(path, queries)
        assert list(read_queries(path)) == queries


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".txt", ".qrels.zst", ".parquet"])
@given(qrels=normal_ids(normal_ids(GRADE)))
def test_qrels_come_back(ending: str, qrels: dict[str, dict[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"qrels{ending}")
        write_qrels(path, qrels)
        assert read_qrels(path) == qrels


@given(scores=normal_ids(normal_ids(SCORE)))
def test_runs_come_back_ranked_and_exact(scores: dict[str, dict[str, float]]) -> None:
    run = {
        query: Result(tuple(Hit(document, score) for document, score in hits.items())) for query, hits in scores.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.run")
        write_run(path, run)
        assert read_run(path) == {query: Result(ranked(hits)) for query, hits in run.items()}


LANGUAGES = {
    "German": [Document("straße-1", "Die Katze schläft auf der Straße.", "Übermut"), Document("größe", "Zu groß?")],
    "French": [Document("été", "L'été où Noël neigea, cœur léger.", "Garçon"), Document("œuvre", "« Ça va ? »")],
    "Chinese": [Document("猫", "猫是一种小型动物。", "家猫"), Document("東京 都", "東京は日本の首都です。", "東京")],
    "Hebrew": [Document("חתול", "החתול ישן על הספה.", "שלום"), Document("a\u0301", "a\u0301 becomes á")],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_corpora_of_other_languages(language: str, tmp_path: Path) -> None:
    documents = LANGUAGES[language]
    queries = [Query(f"q {document.id}", document.title or document.text) for document in documents]
    qrels = {"test": {f"q {document.id}": {document.id: 1} for document in documents}}
    data = Dataset.of(language, documents, queries, qrels)
    for layout in ("beir", "parquet", "msmarco"):
        write_dataset(tmp_path / layout, data, to=layout)
        again = load_dataset(tmp_path / layout)
        assert list(again.documents()) == documents
        assert again.queries("test") == queries
        assert again.qrels("test") == data.qrels("test")
        assert again.fingerprint == data.fingerprint


def test_lines_are_for_people_too(tmp_path: Path) -> None:
    write_documents(tmp_path / "x.jsonl", [Document("1", "Straße\n2", metadata={"url": "u"})])
    line = '{"_id": "1", "title": "", "text": "Straße\\n2", "metadata": {"url": "u"}}\n'
    assert (tmp_path / "x.jsonl").read_text(encoding="utf-8") == line


def test_tsv_keeps_titles_and_flattens_texts(tmp_path: Path) -> None:
    write_documents(tmp_path / "docs.tsv", [Document("1", "a\n\tb", "T", metadata={"url": "u"}), Document("2", "c")])
    assert (tmp_path / "docs.tsv").read_text() == "1\tu\tT\ta b\n2\t\t\tc\n"
    write_documents(tmp_path / "passages.tsv", [Document("1", "a\u2028b"), Document("2", "c", "T")])
    assert (tmp_path / "passages.tsv").read_text() == "1\ta b\n2\tT c\n"


def test_qrels_and_runs_look_as_their_tools_expect(tmp_path: Path) -> None:
    write_qrels(tmp_path / "qrels.txt", {"q1": {"d1": 1, "d 2": 0}})
    assert (tmp_path / "qrels.txt").read_text() == "q1 0 d1 1\nq1\t0\td 2\t0\n"
    write_qrels(tmp_path / "qrels.tsv", {"q1": {"d1": 1}})
    assert (tmp_path / "qrels.tsv").read_text() == "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
    write_run(tmp_path / "x.run", {"q1": Result((Hit("a", 0.1), Hit("b", 0.30000000000000004)))}, tag="bm25")
    assert (tmp_path / "x.run").read_text() == "q1 Q0 b 1 0.30000000000000004 bm25\nq1 Q0 a 2 0.1 bm25\n"


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_equal_data_gives_equal_bytes(ending: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_documents(tmp_path / f"{name}{ending}", [Document("d1", "text")])
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, MemoryError, ValueError])
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".tsv", ".parquet"])
def test_a_failure_leaves_what_was_there(ending: str, failure: type[BaseException], tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        yield Document("d1", "new")
        raise failure

    path = tmp_path / f"corpus{ending}"
    path.write_bytes(b"old")
    with pytest.raises(failure):
        write_documents(path, documents())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_a_dataset_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    bad = Dataset.of("bad", [Document("d1", "x")], [Query("q1", "x")], {"test": {"q1": {"d\t1": 1}}})
    with pytest.raises(DataError, match="holds a tab"):
        write_dataset(tmp_path / "out", bad)
    assert os.listdir(tmp_path) == []


def test_a_folder_with_something_in_it_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("precious")
    with pytest.raises(DataError, match="already exists; name a new folder"):
        write_dataset(tmp_path, Dataset.of("x", [Document("d1", "x")]))
    assert os.listdir(tmp_path) == ["note"]


def test_an_unknown_layout_names_its_nearest_neighbour(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean parquet"):
        write_dataset(tmp_path / "x", Dataset.of("x", [Document("d1", "x")]), to="parkett")


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("ending", [".jsonl", ".tsv", ".parquet"])
@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([Document.stored("", "x", "", (), {})], "document id is empty"),
        ([Document.stored("a\tb", "x", "", (), {})], "holds a tab or line break"),
        ([Document("a", "x"), Document("a", "y")], "a second document with the id a"),
        ([Document("a", "\ud800")], "cannot be written"),
    ],
)
def test_what_could_not_be_read_is_not_written(
    ending: str, documents: list[Document], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        write_documents(tmp_path / f"x{ending}", documents)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("metadata", [{"a": math.nan}, {"a": object()}, {"a": deep(100_000)}, {"a": "\0"}])
def test_metadata_that_json_cannot_carry_is_refused(metadata: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_documents(tmp_path / "x.jsonl", [Document.stored("d1", "x", "", (), metadata)])


def test_text_with_nul_is_refused(tmp_path: Path) -> None:
    for ending in (".jsonl", ".tsv", ".parquet"):
        with pytest.raises(DataError, match="cannot be written"):
            write_documents(tmp_path / f"x{ending}", [Document("d1", "a\0b")])


def test_a_backslash_before_u0000_is_not_a_nul(tmp_path: Path) -> None:
    write_documents(tmp_path / "x.jsonl", [Document("d1", r"\u0000")])
    assert next(read_documents(tmp_path / "x.jsonl")).text == r"\u0000"


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_are_finite(score: float, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give finite scores"):
        write_run(tmp_path / "x.run", {"q1": Result((Hit("d1", score),))})


@pytest.mark.parametrize("grade", [0.5, "1", 2**40])
def test_grades_are_whole_numbers(grade: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the relevance"):
        write_qrels(tmp_path / "qrels.tsv", {"q1": {"d1": grade}})


def test_a_tag_is_one_word(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="should be one word"):
        write_run(tmp_path / "x.run", {}, tag="my system")


def test_an_ending_says_the_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="end it with"):
        write_documents(tmp_path / "x.csv", [Document("d1", "x")])


def test_atomic_makes_folders_and_explains_what_it_cannot_do(tmp_path: Path) -> None:
    with atomic(tmp_path / "a" / "b.json") as file:
        file.write(json.dumps({}).encode())
    assert (tmp_path / "a" / "b.json").read_text() == "{}"
    with pytest.raises(DataError, match="cannot be written"), atomic(tmp_path / "a") as file:
        file.write(b"")
    with pytest.raises(DataError, match="cannot be written"), atomic(tmp_path / "a" / "b.json" / "c") as file:
        file.write(b"")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("layout", ["beir", "parquet", "msmarco"])
def test_splits_without_judgements_are_written_too(layout: str, tmp_path: Path) -> None:
    asked = {"eval": [Query("q1", "another text"), Query("q8", "b")]}
    data = Dataset.of("x", [Document("d1", "x")], [Query("q1", "a")], {"test": {"q1": {"d1": 1}}}, asked)
    write_dataset(tmp_path / "out", data, to=layout)
    again = load_dataset(tmp_path / "out")
    assert again.splits == ("eval", "test")
    assert [again.is_judged(split) for split in again.splits] == [False, True]
    assert [again.queries(split) for split in again.splits] == [asked["eval"], [Query("q1", "a")]]


@pytest.mark.parametrize("titles", [("", "Cats"), ("Cats", ""), ("Cats", "Dogs"), ("", "")])
def test_titles_are_kept_whichever_document_has_one(titles: tuple[str, str], tmp_path: Path) -> None:
    documents = [Document(f"d{at}", "what it says", title) for at, title in enumerate(titles)]
    write_dataset(
        tmp_path / "out", Dataset.of("x", documents, [Query("q1", "a")], {"test": {"q1": {"d1": 1}}}), "msmarco"
    )
    again = load_dataset(tmp_path / "out")
    assert [(document.title, document.text) for document in again.documents()] == [
        (title, "what it says") for title in titles
    ]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("there.json", "new.json"):
        (tmp_path / name).symlink_to(Path("real", name))
    (tmp_path / "real" / "there.json").write_text("old")
    for name in ("there.json", "new.json"):
        with atomic(tmp_path / name) as file:
            file.write(b"{}")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "real" / name).read_bytes() == b"{}"
    assert sorted(os.listdir(tmp_path / "real")) == ["new.json", "there.json"]


def test_pipes_and_devices_are_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "x.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_documents(pipe, [Document("d1", "x")])
    assert os.read(reader, 1000) == b'{"_id": "d1", "title": "", "text": "x"}\n'
    os.close(reader)
    with atomic("/dev/null") as file:
        file.write(b"gone")
    assert (pipe.is_fifo(), Path("/dev/null").is_char_device(), os.listdir(tmp_path)) == (True, True, ["x.jsonl"])


def test_standard_output_in_a_file_is_not_replaced(tmp_path: Path) -> None:
    code = "from triever.files import atomic\nprint('a', flush=True)\nwith atomic('/dev/stdout') as f: f.write(b'b ')"
    with open(tmp_path / "out", "w") as out:
        subprocess.run([sys.executable, "-c", f"{code}\nprint('c')"], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "a\nb c\n"
