"""Datasets: found by content and name, streamed anew, and honest about what does not fit together."""

from __future__ import annotations

import gzip
import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import triever
from triever.data.datasets import Dataset, info, load_dataset
from triever.data.records import Document, Query
from triever.errors import DataError, UsageError
from triever.evaluation.compare import compare

QRELS = "query-id\tcorpus-id\tscore\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return folder


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CORPUS = jsonl(*({"_id": f"d{n}", "title": f"T{n}", "text": f"text {n}"} for n in range(4)))
QUERIES = jsonl(*({"_id": f"q{n}", "text": f"question {n}"} for n in range(4)))
BEIR = {
    "corpus.jsonl.gz": CORPUS,
    "queries.jsonl.gz": QUERIES,
    "qrels/dev.tsv": QRELS + "q1\td1\t1\nq1\td2\t0\n",
    "qrels/dev.nq.tsv": QRELS + "q2\td2\t2\n",
    "qrels/train.tsv": QRELS + "q0\td0\t1\nq3\td3\t1\n",
    "meta.json": json.dumps({"licence": "none"}, indent=1),
    "README.md": "# About\nThis is no document.",
    "paper.pdf": "%PDF-1.5 \0",
    "bm25.run": "q1 Q0 d1 1 2.5 bm25\n",
}


def ids(queries: list[Query]) -> list[str]:
    return [query.id for query in queries]


def test_a_beir_folder(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "handbook", BEIR))
    assert (data.name, data.splits) == ("handbook", ("dev", "dev.nq", "train"))
    assert [document.id for document in data.documents()] == ["d0", "d1", "d2", "d3"]
    assert len(list(data.documents())) == 4, "documents stream anew"
    assert ids(data.queries("dev")) == ["q1"]
    assert ids(data.queries("train")) == ["q0", "q3"]
    assert data.qrels("dev.nq") == {"q2": {"d2": 2}}


def test_msmarco_has_queries_for_each_split(tmp_path: Path) -> None:
    files = {
        "collection.tsv": "1\tcats\n2\tdogs\n",
        "queries.train.tsv": "10\twhat\n11\twho\n",
        "queries.dev.tsv": "20\twhere\n",
        "queries.eval.tsv": "30\twhy\n",
        "qrels.train.tsv": "10\t0\t1\t1\n",
        "qrels.dev.tsv": "20\t0\t2\t1\n",
    }
    data = load_dataset(write(tmp_path, files))
    assert data.splits == ("dev", "eval", "train")
    assert ids(data.queries("train")) == ["10"]
    assert ids(data.queries("dev")) == ["20"]
    assert (ids(data.queries("eval")), data.qrels("eval")) == (["30"], {})


def test_qrels_of_a_smaller_split_find_their_queries(tmp_path: Path) -> None:
    files = {
        "collection.tsv": "1\tcats\n2\tdogs\n",
        "queries.dev.tsv": "20\twhere\n21\twhen\n",
        "qrels.dev.small.tsv": "20\t0\t2\t1\n",
    }
    data = load_dataset(write(tmp_path, files))
    assert data.splits == ("dev.small",)
    assert ids(data.queries("dev.small")) == ["20"]


def test_queries_without_qrels_are_a_split_of_their_own(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "a", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}))
    assert (data.splits, len(data.queries("all")), data.qrels("all")) == (("all",), 4, {})
    data = load_dataset(write(tmp_path / "b", {"corpus.jsonl": CORPUS, "queries.test.jsonl": QUERIES}))
    assert data.splits == ("test",)


def test_trec_files_ending_in_txt_count_beside_documents(tmp_path: Path) -> None:
    files = {
        "docs.jsonl": CORPUS,
        "topics.robust.txt": "<top>\n<num> Number: 301\n<title> crime\n</top>\n",
        "qrels.robust.txt": "301 0 d1 1\n",
        "licence.txt": "Do as you like.\n",
    }
    data = load_dataset(write(tmp_path, files))
    assert (data.splits, ids(data.queries("robust"))) == (("robust",), ["301"])
    assert len(list(data.documents())) == 4


def squad(title: str) -> str:
    paragraph = {"context": "Text.", "qas": [{"id": f"{title}?", "question": "What?", "answers": []}]}
    return json.dumps({"version": "1.1", "data": [{"title": title, "paragraphs": [paragraph]}]})


def test_squad_files_are_documents_and_splits(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, {"train-v1.1.json": squad("Cats"), "dev-v1.1.json": squad("Dogs")}))
    assert data.splits == ("dev", "train")
    assert [document.id for document in data.documents()] == ["Dogs-0", "Cats-0"]
    assert (ids(data.queries("train")), data.qrels("train")) == (["Cats?"], {"Cats?": {"Cats-0": 1}})


def test_passages_of_questions_are_the_corpus_only_without_one(tmp_path: Path) -> None:
    dpr = json.dumps([{"question": "What?", "answers": [], "positive_ctxs": [{"text": "t", "passage_id": "1"}]}])
    alone = load_dataset(write(tmp_path / "a", {"nq-train.json": dpr, "nq-dev.json": dpr}))
    assert [document.id for document in alone.documents()] == ["1"]
    data = load_dataset(
        write(tmp_path / "b", {"nq-train.json": dpr, "psgs.tsv": "id\ttext\ttitle\n1\tt\tT\n2\tu\tU\n"})
    )
    assert [document.id for document in data.documents()] == ["1", "2"]
    assert data.qrels("nq-train") == {"nq-train-0": {"1": 1}}


def test_one_file_is_a_dataset_too(tmp_path: Path) -> None:
    write(tmp_path, {"pages.jsonl.gz": CORPUS})
    data = load_dataset(str(tmp_path / "pages.jsonl.gz"))
    assert (data.name, data.splits, len(list(data.documents()))) == ("pages", (), 4)


def test_a_folder_of_notes(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, {"a.md": "# A\ntext", "sub/b.txt": "text"}))
    assert [document.id for document in data.documents()] == ["a.md", "sub/b.txt"]


def test_a_name_is_looked_up_under_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "shelf" / "handbook", BEIR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIEVER_DATA", raising=False)
    with pytest.raises(DataError, match="set TRIEVER_DATA to the folder"):
        load_dataset("handbook")
    monkeypatch.setenv("TRIEVER_DATA", str(tmp_path / "shelf"))
    assert load_dataset("handbook").splits == ("dev", "dev.nq", "train")
    with pytest.raises(DataError, match=r"did you mean handbook\? known: handbook, python"):
        load_dataset("hanbook")
    write(tmp_path / "handbook", {"corpus.jsonl": CORPUS})
    assert load_dataset("handbook").splits == (), "a path comes first"
    with pytest.raises(DataError, match=r"did you mean shelf\? known: handbook, python"):
        load_dataset("shell")
    monkeypatch.delenv("TRIEVER_DATA")
    for near, name in {"shelves": "shelf", "pyhton": "python"}.items():
        with pytest.raises(DataError, match=rf"dataset called {near}; did you mean {name}\?$"):
            load_dataset(near)
    monkeypatch.setenv("TRIEVER_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"TRIEVER_DATA=.* cannot be read"):
        load_dataset("zzz")


def test_a_path_that_is_not_there_names_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "handbook", BEIR)
    for path in (tmp_path / "hanbook", str(tmp_path / "hanbook")):
        with pytest.raises(DataError, match=r"does not exist; did you mean handbook\?"):
            load_dataset(path)


def test_python_is_the_interpreters_own_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("triever.data.python_docs")
    asked = ([Query("q1", "sort a list")], {"test": {"q1": {"sorted": 1}}})
    vars(fake).update(documents=lambda package="": [Document(package or "sorted", "x")], questions=lambda: asked)
    monkeypatch.setitem(sys.modules, "triever.data.python_docs", fake)
    monkeypatch.setattr("triever.data.python_docs", fake, raising=False)
    data = load_dataset("python")
    assert (data.name, data.splits, ids(data.queries("test"))) == ("python", ("test",), ["q1"])
    data = load_dataset("python:json")
    assert (data.name, data.splits, next(data.documents()).id) == ("python:json", (), "json")


def test_lenient_loading_leaves_bad_records_out_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {**BEIR, "corpus.jsonl": CORPUS + '{"_id": "d9"}\n', "qrels/dev.tsv": QRELS + "q1\td1\tx\nq1\td2\t1\n"}
    del files["corpus.jsonl.gz"]
    strict = load_dataset(write(tmp_path, files))
    with pytest.raises(DataError, match=r"corpus.jsonl:5: the document has neither text nor title"):
        list(strict.documents())
    with pytest.raises(DataError, match=r"dev.tsv:2: the relevance 'x'"):
        strict.qrels("dev")
    lenient = load_dataset(tmp_path, skip_bad=True)
    with caplog.at_level(logging.WARNING, "triever"):
        assert [len(list(lenient.documents())) for _ in range(2)] == [4, 4]
        assert lenient.qrels("dev") == {"q1": {"d2": 1}}
    assert [record.message.split(": ", 1)[1][:25] for record in caplog.records] == ["1 bad record was left out"] * 2


@pytest.mark.parametrize(("more", "said"), [({}, True), ({"text": "a page"}, False)])
def test_a_text_under_an_unknown_name_is_warned_of(
    more: dict[str, str], said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"id": "1", "title": "Printer", "Message": "It jams."}, {"id": "2", "title": "Wifi", **more}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with caplog.at_level(logging.WARNING, "triever"):
        assert len(list(load_dataset(tmp_path).documents())) == 2
    assert ("2 documents have a title and no text: Message became metadata" in caplog.text) == said


def test_judgements_of_what_is_not_there_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {
        "corpus.jsonl": CORPUS,
        "queries.jsonl": QUERIES,
        "qrels/test.tsv": QRELS + "q1\td1\t1\nq1\tx\t1\nz\td2\t1\n",
    }
    data = load_dataset(write(tmp_path / "x", files))
    with caplog.at_level(logging.WARNING, "triever"):
        assert ids(data.queries("test")) == ["q1"]
        list(data.documents())
        assert data.unknown_documents("test", {"d1", "d2"}) == ["x"]
    assert [record.message for record in caplog.records] == [
        "x: 1 judged query of test is not there; where it is measured, it counts as a miss",
        "x: 1 document that is judged relevant in test is not there",
    ]


def test_a_judged_document_that_is_not_there_is_told_of_once_for_each_split(caplog: pytest.LogCaptureFixture) -> None:
    documents, queries = [Document("d1", "a lamp")], [Query("q1", "lamp"), Query("q2", "a lamp")]
    qrels = {"dev": {"q1": {"d1": 1, "x": 1}}, "test": {"q2": {"d1": 1, "x": 1, "y": 1}}}
    data = Dataset.of("x", documents, queries, qrels)
    with caplog.at_level(logging.WARNING, "triever"):
        for split in ("dev", "test", "dev+test"):
            data.queries(split)
        retriever = triever.BM25().fit(data)
        assert data.unknown_documents("dev+test", retriever.documents) == ["x", "y"]
        for split in ("dev", "test"):
            compare({"bm25": retriever}, data, split=split, measures=["nDCG@10"])
    assert [record.message for record in caplog.records] == [
        "x: 1 document that is judged relevant in dev is not there",
        "x: 2 documents that are judged relevant in test are not there",
    ]


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (1, "x: 1 of 2 judged queries of test has no relevant document: whatever is found, it counts as a miss"),
        (2, "x: 2 of 3 judged queries of test have no relevant document: whatever is found, they count as misses"),
    ],
)
def test_queries_without_a_relevant_document_are_told_of(
    queries: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [Query(f"q{number}", "lamp") for number in range(queries + 1)]
    qrels = {query.id: {"d1": int(query is asked[-1])} for query in asked}
    data = Dataset.of("x", [Document("d1", "a lamp")], asked, {"test": qrels})
    with caplog.at_level(logging.WARNING, "triever"):
        assert len(data.queries_without_relevant("test")) == queries
    assert caplog.messages == [said]


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_an_empty_file_that_was_not_used_is_called_empty(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS + "q1\td1\t1\n"}
    data = load_dataset(write(tmp_path / "x", {**files, "qrels/none.tsv": content}))
    assert data.splits == ("test",)
    assert data.ignored == ("qrels/none.tsv",)
    assert caplog.messages == ["x: 1 file looks like data and was not used: qrels/none.tsv (empty)"]


def test_the_fingerprint_is_the_content_and_its_order() -> None:
    def fingerprint(*documents: Document) -> str:
        return Dataset.of("x", documents).fingerprint

    a, b = Document("a", "text", "title"), Document("b", "text")
    assert fingerprint(a, b) == fingerprint(a, Document("b", "text", expansions=("more",), metadata={"k": 1}))
    different = {fingerprint(a, b), fingerprint(b, a), fingerprint(a), fingerprint(Document("a", "title", "text"), b)}
    assert len(different | {fingerprint(Document("at", "ext", "title"), b)}) == 5


def test_expansions_join_their_documents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = Dataset.of("x", [Document("d1", "a", expansions=("old",)), Document("d2", "b")], [Query("q", "?")])
    write(tmp_path, {"more.jsonl": jsonl({"_id": "d1", "texts": ["new"]}, {"_id": "d9", "texts": ["lost"]})})
    with caplog.at_level(logging.WARNING, "triever"):
        more = data.with_expansions(tmp_path / "more.jsonl")
        assert [document.expansions for document in more.documents()] == [("old", "new"), ()]
    assert "1 expansion belongs to a document that is not there" in caplog.text
    assert [document.expansions for document in data.documents()] == [("old",), ()]
    assert (more.fingerprint, more.splits) == (data.fingerprint, data.splits)
    assert next(data.with_expansions({"d1": ["x", "y"]}).documents()).expansions == ("old", "x", "y")


def test_a_dataset_in_memory_refuses_what_files_may_not_hold() -> None:
    with pytest.raises(DataError, match="two documents have the id 'd'"):
        Dataset.of("x", [Document("d", "a"), Document("d", "b")])
    with pytest.raises(DataError, match="two queries have the id 'q'"):
        Dataset.of("x", [], [Query("q", "a"), Query("q", "b")])


def test_an_unknown_split_names_its_nearest_neighbour() -> None:
    data = Dataset.of("x", [Document("d", "a")], [Query("q", "a")], {"test": {"q": {"d": 1}}})
    for ask in (data.queries, data.qrels):
        with pytest.raises(UsageError, match=r"x has no split 'tset'; did you mean test\?"):
            ask("tset")
    with pytest.raises(UsageError, match=r"its only split is test: --set training\.split=test learns from it"):
        data.queries("train")
    with pytest.raises(UsageError, match="the dataset has no queries at all"):
        Dataset.of("x", [Document("d", "a")]).queries("test")


def test_several_splits_are_taken_together(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "handbook", BEIR))
    assert ids(data.queries("train+dev.nq")) == ["q0", "q3", "q2"]
    assert data.qrels("dev.nq + dev") == {**data.qrels("dev.nq"), **data.qrels("dev")}
    assert data.queries("dev+dev") == data.queries("dev")
    assert data.unknown_documents("dev+train", {"d0", "d1"}) == ["d3"]
    for ask in (data.queries, data.qrels, data.parts_of):
        with pytest.raises(UsageError, match=r"handbook has no split 'trian'; did you mean train\?"):
            ask("dev+trian")


def test_what_two_splits_say_of_one_query_is_joined() -> None:
    qrels = {"one": {"q": {"a": 1, "b": 0}}, "two": {"q": {"b": 2, "c": 1}}}
    data = Dataset.of("x", [Document(one, one) for one in "abc"], [Query("q", "?")], qrels)
    assert data.qrels("one+two") == {"q": {"a": 1, "b": 0, "c": 1}}
    assert ids(data.queries("one+two")) == ["q"]


def test_a_split_may_have_the_sign_in_its_own_name() -> None:
    qrels = {"c+": {"q": {"d": 1}}, "c": {}}
    data = Dataset.of("x", [Document("d", "a")], [Query("q", "a")], qrels)
    assert data.qrels("c+") == {"q": {"d": 1}}


def test_what_a_caller_does_to_a_list_stays_with_the_caller() -> None:
    data = Dataset.of("x", [Document("d", "a")], [Query("q", "a")], {"test": {"q": {"d": 1}}})
    data.queries("test").clear()
    assert ids(data.queries("test")) == ["q"]


NOTES = {"a.md": "# A\ntext", "sub/b.txt": "text", "c.txt": "more"}


def test_notes_with_questions_beside_them_are_a_dataset(tmp_path: Path) -> None:
    files = {**NOTES, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS + "q1\tsub/b.txt\t1\n"}
    data = load_dataset(write(tmp_path, files))
    assert [document.id for document in data.documents()] == ["a.md", "c.txt", "sub/b.txt"]
    assert (data.splits, ids(data.queries("test")), data.ignored) == (("test",), ["q1"], ())


def test_a_readme_is_no_corpus_for_questions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no documents, only queries\.jsonl"):
        load_dataset(write(tmp_path, {"README.md": "# About", "queries.jsonl": QUERIES}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package.json", json.dumps({"_id": "left-pad@1.0", "description": "pads"}, indent=1)),
        ("package.json", json.dumps({"id": "left-pad", "title": "pads"})),
        ("budget.tsv", "rent\t100\nfood\t200\n"),
    ],
)
def test_a_stray_record_does_not_replace_the_notes(
    name: str, content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = load_dataset(write(tmp_path / "notes", {**NOTES, name: content}))
    assert [document.id for document in data.documents()] == ["a.md", "c.txt", "sub/b.txt"]
    assert data.ignored == (name,)
    assert [record.message for record in caplog.records] == [f"notes: 1 file looks like data and was not used: {name}"]


def test_a_collection_stays_one_beside_notes(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, {**NOTES, "collection.tsv": "1\tcats\n"}))
    assert [document.id for document in data.documents()] == ["1"]


def test_files_that_were_not_used_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {
        **BEIR,
        "more.jsonl.bz2": "BZh91AY",
        "odd.jsonl": jsonl({"name": "x"}),
        "one/two/three.csv": "id,text\n1,x\n",
        "sheet.csv": "name,price\nx,1\n",
    }
    data = load_dataset(write(tmp_path / "x", files))
    assert data.ignored == ("more.jsonl.bz2", "odd.jsonl", "sheet.csv", "one/two/three.csv")
    assert [record.message for record in caplog.records] == [
        "x: 4 files look like data and were not used: more.jsonl.bz2, odd.jsonl, sheet.csv, …"
    ]
    assert info(data)["ignored files"] == list(data.ignored)
    assert data.with_expansions({}).ignored == data.ignored
    with pytest.raises(DataError, match=r"holds no documents, nothing readable in odd\.jsonl; expected"):
        load_dataset(write(tmp_path / "y", {"odd.jsonl": files["odd.jsonl"]}))


def test_whatever_else_was_not_read_is_listed_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = {"notes.txt": "Remember the milk.", "sub/deep/image.png": "", ".hidden.txt": ""}
    data = load_dataset(write(tmp_path / "x", {**BEIR, **others, "odd.jsonl": jsonl({"name": "x"})}))
    assert data.ignored == ("odd.jsonl",)
    assert data.unread == ("README.md", "bm25.run", "meta.json", "notes.txt", "paper.pdf", "sub/deep/image.png")
    assert len(caplog.records) == 1, "only what looks like data is warned of"
    assert info(data)["unread files"] == list(data.unread)
    assert data.with_expansions({}).unread == data.unread
    notes = load_dataset(write(tmp_path / "y", {**NOTES, "queries.jsonl": QUERIES, "image.png": ""}))
    assert len(list(notes.documents())) == len(NOTES)
    assert notes.unread == ("image.png",)


def test_what_triever_saved_is_no_data(tmp_path: Path) -> None:
    saved = {"model/manifest.json": '{"format": "triever"}', "model/documents.jsonl": CORPUS, "model/notes.txt": "x"}
    data = load_dataset(write(tmp_path / "a", {"docs.jsonl": jsonl({"_id": "1", "title": "", "text": "x"}), **saved}))
    assert ([document.id for document in data.documents()], data.ignored) == (["1"], ())
    data = load_dataset(write(tmp_path / "b", {**NOTES, **saved}))
    assert [document.id for document in data.documents()] == ["a.md", "c.txt", "sub/b.txt"]
    data = load_dataset(write(tmp_path / "c", {"model/manifest.json": '{"format": 1}', "model/docs.jsonl": CORPUS}))
    assert len(list(data.documents())) == 4, "somebody else's manifest"


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(name: str) -> None:
    with pytest.raises(UsageError, match="the name of the dataset is empty; give a path or a name"):
        load_dataset(name)
