"""What `info` counts, on a dataset with one of everything."""

from __future__ import annotations

import json
from pathlib import Path

from triever.data.datasets import Dataset, info, load_dataset
from triever.data.records import Document, Query


def test_everything_is_counted() -> None:
    documents = [
        Document("d1", "two words", "A title"),
        Document("d2", "Straße"),
        Document("d3", ""),
    ]
    queries = [Query("q1", "what"), Query("q2", " "), Query("q3", "unjudged")]
    qrels = {
        "dev": {"q1": {"d1": 1, "d2": 2, "gone": 1}, "q2": {"d1": 0}, "lost": {"d1": 1, "gone": 0}},
        "test": {},
    }
    data = Dataset.of("tiny", documents, queries, qrels)
    assert info(data) == {
        "name": "tiny",
        "documents": 3,
        "empty": 1,
        "with title": 1,
        "title only": 0,
        "mean words": 1.7,
        "max words": 4,
        "bytes": len("A titletwo wordsStraße".encode()),
        "fingerprint": data.fingerprint,
        "bad records": 0,
        "examples": [],
        "ignored files": [],
        "unread files": [],
        "splits": {
            "dev": {
                "queries": 2,
                "queries without text": 1,
                "judged queries not there": 1,
                "judged pairs": 6,
                "relevant per query": 1.33,
                "queries without relevant": 1,
                "judged documents not there": 1,
            },
            "test": {
                "queries": 0,
                "queries without text": 0,
                "judged queries not there": 0,
                "judged pairs": 0,
                "relevant per query": 0.0,
                "queries without relevant": 0,
                "judged documents not there": 0,
            },
        },
    }


def test_bad_records_are_counted_once_however_often_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "x"}\n{"_id": ""}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\nnonsense\n')
    (tmp_path / "qrels").mkdir()
    for split in ("dev", "test"):
        (tmp_path / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    found = info(load_dataset(tmp_path, skip_bad=True))
    assert found["bad records"] == 2
    assert [example.split(": ")[1] for example in found["examples"]] == [
        "the id is empty; give every record its own id",
        "invalid JSON at column 1",
    ]


def test_a_split_without_judgements_has_only_queries() -> None:
    found = info(Dataset.of("x", [Document("d1", "x")], [Query("q1", "x")]))
    assert found["splits"] == {"all": {"queries": 1, "queries without text": 0}}
    json.dumps(found)


def test_documents_with_nothing_but_a_title_are_counted(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "Cats", "prose": "A cat is a small animal."}\n')
    assert info(load_dataset(tmp_path))["title only"] == 1


def test_a_blank_text_file_is_an_empty_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \n")
    (tmp_path / "b.txt").write_text("A bird.")
    found = info(load_dataset(tmp_path))
    assert (found["documents"], found["empty"], found["title only"]) == (2, 1, 0)


def test_questions_without_evidence_are_kept_and_counted(tmp_path: Path) -> None:
    answered = {"id": "q1", "input": "What?", "output": [{"answer": "cat", "provenance": [{"wikipedia_id": "7"}]}]}
    open_ = {"id": "q2", "input": "Who?", "output": [{"answer": "dog"}]}
    (tmp_path / "corpus.jsonl").write_text('{"_id": "7", "title": "", "text": "x"}\n')
    (tmp_path / "dev-kilt.jsonl").write_text(f"{json.dumps(answered)}\n{json.dumps(open_)}\n")
    (tmp_path / "test-kilt.jsonl").write_text(json.dumps(open_))
    data = load_dataset(tmp_path)
    found = info(data)["splits"]
    dev = found["dev-kilt"]
    assert (dev["queries"], dev["judged pairs"], dev["queries without relevant"]) == (2, 1, 1)
    assert dev["judged queries not there"] == 0
    assert found["test-kilt"] == {"queries": 1, "queries without text": 0}
    assert [data.is_judged(split) for split in data.splits] == [True, False]
    assert [query.id for query in data.queries("dev-kilt")] == ["q1", "q2"]
    assert data.qrels("dev-kilt") == {"q1": {"7": 1}}
