"""Each format of the field: it is recognised by its content and read into the same records."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from triever.data.formats.sniff import Format, Role, recognise, sniff
from triever.data.readers import (
    Problems,
    read_documents,
    read_expansions,
    read_qrels,
    read_queries,
    read_run,
)
from triever.data.records import Document, Hit, Query, normalise
from triever.errors import BadRecord, DataError
from triever.parquet import pages as parquet_pages

DSI_LINES = [
    {"text_id": 17, "text": "Passage: Tea</s>Pour boiling water."},
    {"text_id": 17, "text": "Question: how is tea made"},
    {"text_id": 4, "text": "Passage: Knead the dough."},
]


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """A function that writes a file; its name says nothing unless it must."""

    def write(content: str | bytes | list[Any] | dict[str, Any], name: str = "x") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list | dict):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_beir_documents(put: Any) -> None:
    path = put(
        jsonl({"_id": "d1", "title": "Cats", "text": "A cat.", "metadata": {"url": "u"}}, {"_id": 2, "text": ""})
    )
    assert sniff(path).roles == (Role.DOCUMENTS,)
    assert list(read_documents(path)) == [
        Document("d1", "A cat.", "Cats", metadata={"url": "u"}),
        Document("2", ""),
    ]


def test_other_names_of_the_same_fields(put: Any) -> None:
    path = put(jsonl({"id": "d1", "contents": "A cat.", "title": None, "lang": "en"}, {"docid": "d2", "title": "Dogs"}))
    assert list(read_documents(path)) == [
        Document("d1", "A cat.", metadata={"lang": "en"}),
        Document("d2", "", "Dogs"),
    ]


def test_documents_may_carry_expansions(put: Any) -> None:
    path = put(jsonl({"_id": "d1", "title": "", "text": "A cat.", "expansions": ["what purrs?", "cats?"]}))
    assert next(read_documents(path)).expansions == ("what purrs?", "cats?")


def test_beir_queries_with_answers_here_or_there(put: Any) -> None:
    rows = [
        {"_id": "q1", "text": "What?", "metadata": {"answers": ["cat", "a cat"], "src": "nq"}},
        {"_id": "q2", "text": "Who?", "answers": ["he"]},
        {"_id": "q3", "text": "Why?", "metadata": {"evidence": {"7": ["sentence"]}}},
        {"_id": "q4", "text": "How?", "metadata": {"evidence": [["d1", "d2"], ["d3"]]}},
        {"_id": "q5", "question": "When?", "answers": "now"},
    ]
    path = put(jsonl(*rows))
    assert sniff(path).roles == (Role.QUERIES,)
    assert list(read_queries(path)) == [
        Query("q1", "What?", ("cat", "a cat"), metadata={"src": "nq"}),
        Query("q2", "Who?", ("he",)),
        Query("q3", "Why?", metadata={"evidence": {"7": ["sentence"]}}),
        Query("q4", "How?", evidence=(("d1", "d2"), ("d3",))),
        Query("q5", "When?", ("now",)),
    ]


def test_a_name_decides_only_what_the_content_leaves_open(put: Any) -> None:
    plain, asked = jsonl({"_id": "1", "text": "cats"}), jsonl({"_id": "1", "question": "cats?"})
    assert (sniff(put(plain, "corpus.jsonl")).roles, sniff(put(plain, "queries.jsonl")).roles) == (
        (Role.DOCUMENTS,),
        (Role.QUERIES,),
    )
    assert not sniff(put(plain, "queries.jsonl")).sure
    assert sniff(put(asked, "corpus.jsonl")).roles == (Role.QUERIES,)
    assert sniff(put("1\tcats\n", "queries.dev.tsv")).roles == (Role.QUERIES,)
    assert sniff(put("1\tcats\n", "collection.tsv")).roles == (Role.DOCUMENTS,)


def test_a_list_of_objects_is_as_good_as_lines(put: Any) -> None:
    path = put([{"_id": "d1", "title": "", "text": "a"}, {"_id": "d2", "title": "", "text": "b"}])
    assert sniff(path).format is Format.JSON
    assert [document.text for document in read_documents(path)] == ["a", "b"]
    assert [query.id for query in read_queries(path)] == ["d1", "d2"]


def test_kilt_pages(put: Any) -> None:
    page = {
        "_id": "290",
        "wikipedia_id": "290",
        "wikipedia_title": "A",
        "text": ["A\n", "A or a is the first letter.\n", "Section::::History.\n"],
        "categories": "ISO basic Latin letters",
        "anchors": [{"text": "letter"}],
    }
    path = put(jsonl(page))
    assert sniff(path).format is Format.KILT_PAGES
    text = "A or a is the first letter.\nSection::::History."
    assert list(read_documents(path)) == [Document("290", text, "A", metadata={"categories": page["categories"]})]


def test_kilt_tasks(put: Any) -> None:
    item = {
        "id": "q1",
        "input": "Which letter?",
        "meta": {"left_context": ""},
        "output": [
            {"answer": "A", "provenance": [{"wikipedia_id": "290"}, {"wikipedia_id": 7}, {"wikipedia_id": "290"}]},
            {"answer": "a"},
            {"answer": "A", "provenance": [{"wikipedia_id": "8"}]},
            {"provenance": [{"title": "no id"}]},
        ],
    }
    path = put(jsonl(item, {"id": "q2", "input": "Unknown?", "output": []}))
    assert sniff(path).roles == (Role.QUERIES, Role.QRELS)
    assert list(read_queries(path)) == [
        Query("q1", "Which letter?", ("A", "a"), (("290", "7"), ("8",)), {"left_context": ""}),
        Query("q2", "Unknown?"),
    ]
    assert read_qrels(path) == {"q1": {"290": 1, "7": 1, "8": 1}}


def test_msmarco(put: Any) -> None:
    passages = put("0\tThe presence of\u2028cats.\n1\t\n", "collection.tsv")
    documents = put("D1\thttp://a\tCats\tA cat.\nD2\t\t\tA dog.\n", "docs.tsv")
    assert list(read_documents(passages)) == [Document("0", "The presence of\u2028cats."), Document("1", "")]
    assert list(read_documents(documents)) == [
        Document("D1", "A cat.", "Cats", metadata={"url": "http://a"}),
        Document("D2", "A dog."),
    ]
    assert list(read_queries(put("121\twhat is a cat\n", "queries.tsv"))) == [Query("121", "what is a cat")]
    assert read_qrels(put("121\t0\t7\t1\n121\t0\t8\t0\n", "qrels.dev.tsv")) == {"121": {"7": 1, "8": 0}}


def test_dpr_passages_are_quoted_as_csv(put: Any) -> None:
    rows = ["id\ttext\ttitle", '1\t"The ""cat"" sat."\tCats', '2\t"A" and "B"\t"Dogs"', '3\t"\tX']
    path = put("\n".join(rows))
    assert sniff(path).format is Format.TABLE
    assert list(read_documents(path)) == [
        Document("1", 'The "cat" sat.', "Cats"),
        Document("2", '"A" and "B"', "Dogs"),
        Document("3", '"', "X"),
    ]


def test_trec_topics(put: Any) -> None:
    text = """<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations &amp; people
in crime.

<narr> Narrative:
Relevant if x < 5.
</top>

<TOP>
<num>302</num>
<title></title>
<desc>Is the disease of Poliomyelitis under control?</desc>
</TOP>
"""
    path = put(text)
    assert sniff(path).format is Format.TOPICS
    about = {"description": "Identify organizations & people in crime.", "narrative": "Relevant if x < 5."}
    disease = "Is the disease of Poliomyelitis under control?"
    assert list(read_queries(path)) == [
        Query("301", "International Organized Crime", metadata=about),
        Query("302", disease, metadata={"description": disease}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 -2\n",
        "q1\t0\td1\t1\nq1\t0\td2\t0\nq2\t0\td1\t-2\n",
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0.0\nq2\td1\t-2\n",
        "q1\td1\t1.0\r\nq1\td2\t0\r\nq2\td1\t-2\r\n",
        "qid docid rel\nq1 d1 1\n\nq1 d2 +0\nq2 d1 -2\n",
        "corpus-id\tquery-id\tscore\nd1\tq1\t1\nd2\tq1\t0\nd1\tq2\t-2\n",
        jsonl(
            {"query-id": "q1", "corpus-id": "d1", "score": 1},
            {"query-id": "q1", "corpus-id": "d2", "score": 0},
            {"query-id": "q2", "corpus-id": "d1", "score": -2},
        ),
    ],
)
def test_qrels_in_all_their_shapes(text: str, put: Any) -> None:
    path = put(text)
    assert sniff(path).roles == (Role.QRELS,)
    assert read_qrels(path) == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": -2}}


def test_ids_with_spaces_stand_between_tabs(put: Any) -> None:
    assert read_qrels(put("q 1\t0\td 1\t1\n")) == {"q 1": {"d 1": 1}}
    assert read_run(put("q 1\tQ0\td 1\t1\t0.5\ttag\n"))["q 1"].hits == (Hit("d 1", 0.5),)


def test_a_run_is_ranked_by_its_scores(put: Any) -> None:
    path = put("q1 Q0 a 1 1.0 x\nq1 Q0 c 2 3.0000000000000004 x\nq1 Q0 b 3 1.0 x\nq2 Q0 a 1 -1e-300 x\n")
    assert sniff(path).roles == (Role.RUN,)
    run = read_run(path)
    assert run["q1"].hits == (Hit("c", 3.0000000000000004), Hit("b", 1.0), Hit("a", 1.0))
    assert run["q2"].hits == (Hit("a", -1e-300),)


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Super_Bowl_50",
            "paragraphs": [
                {
                    "context": "The Broncos won.",
                    "qas": [
                        {"id": "q1", "question": "Who won?", "answers": [{"text": "Broncos"}, {"text": "Broncos"}]},
                        {"id": "q2", "question": "Who lost?", "answers": [], "is_impossible": True},
                    ],
                },
                {"context": "It was in 2016.", "qas": []},
            ],
        },
        {"title": "", "paragraphs": [{"context": "No title.", "qas": []}]},
    ],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_squad(indent: int | None, put: Any) -> None:
    path = put(json.dumps(SQUAD, indent=indent))
    assert sniff(path).format is Format.SQUAD
    assert list(read_documents(path)) == [
        Document("Super_Bowl_50-0", "The Broncos won.", "Super Bowl 50"),
        Document("Super_Bowl_50-1", "It was in 2016.", "Super Bowl 50"),
        Document("1-0", "No title."),
    ]
    assert list(read_queries(path)) == [
        Query("q1", "Who won?", ("Broncos",)),
        Query("q2", "Who lost?", metadata={"is_impossible": True}),
    ]
    assert read_qrels(path) == {"q1": {"Super_Bowl_50-0": 1}, "q2": {"Super_Bowl_50-0": 1}}


def test_bad_questions_of_one_line_are_counted_one_by_one_and_have_no_judgements(put: Any) -> None:
    asked = [{"id": f"q{n}", "question": "Who?", "answers": None if n % 2 else []} for n in range(6)]
    path = put({"data": [{"title": "T", "paragraphs": [{"context": "A text.", "qas": asked}]}]})
    problems = Problems(skip_bad=True)
    kept = [query.id for query in read_queries(path, problems)]
    assert kept == [*read_qrels(path, problems)] == ["q0", "q2", "q4"]
    assert problems.count == 3, "a record that is read twice counts once"
    assert "(record 2 from this line on)" in problems.examples[0]


def test_bad_records_of_a_json_list_on_one_line_are_counted_one_by_one(put: Any) -> None:
    path = put([{"_id": "a", "text": "x"}, {"text": "y"}, {"text": "z"}], "corpus.json")
    problems = Problems(skip_bad=True)
    assert [document.id for document in read_documents(path, problems)] == ["a"]
    assert problems.count == 2


def test_squad_on_one_line_beyond_the_limit_of_lines(put: Any) -> None:
    article = {"title": "Long", "paragraphs": [{"context": "word " * 200_000, "qas": []}]}
    path = put({"data": [{**article, "title": f"Long{n}"} for n in range(20)]})
    assert path.stat().st_size > 2**24
    assert len(list(read_documents(path))) == 20


def test_dpr(put: Any) -> None:
    cat = {"title": "Cats", "text": "A cat.", "passage_id": "7"}
    dog = {"title": "Dogs", "text": "A dog.", "psg_id": 8}
    bare = {"title": "Birds", "text": "A bird."}
    items = [
        {"question": "What?", "answers": ["cat"], "positive_ctxs": [cat], "hard_negative_ctxs": [dog]},
        {"question": "Which?", "answers": ["dog"], "positive_ctxs": [dog, bare, dog], "hard_negative_ctxs": [cat]},
    ]
    path = put(items, "nq-train.json")
    assert sniff(path).format is Format.DPR
    documents = list(read_documents(path))
    assert [document.title for document in documents] == ["Cats", "Dogs", "Birds"]
    assert [document.id for document in documents[:2]] == ["7", "8"]
    assert list(read_queries(path)) == [Query("nq-train-0", "What?", ("cat",)), Query("nq-train-1", "Which?", ("dog",))]
    assert read_qrels(path) == {"nq-train-0": {"7": 1}, "nq-train-1": {"8": 1, documents[2].id: 1}}
    assert documents[2].id == list(read_documents(path))[2].id, "made ids are the same each time"


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x"
    columns = {
        "docid": pa.array([1, 2]),
        "title": pa.array(["Cats", None]).dictionary_encode(),
        "text": pa.array(["A cat.", "A dog."], pa.large_string()),
        "embedding": pa.array([[0.5], [0.25]]),
    }
    pq.write_table(pa.table(columns), path)
    assert sniff(path).format is Format.PARQUET
    assert list(read_documents(path)) == [Document("1", "A cat.", "Cats"), Document("2", "A dog.")]


def test_columns_of_parquet_with_other_names_are_metadata(tmp_path: Path, caplog: Any) -> None:
    new_year, nothing = datetime.datetime(2024, 1, 1), pa.nulls(1)
    further = {
        "Year": (pa.array([1999]), 1999),
        "share": (pa.array([0.1], pa.float32()), 0.1),
        "none": (pa.array([math.nan]), None),
        "price": (pa.array([decimal.Decimal("1.50")]), 1.5),
        "cut": (pa.array([True]), True),
        "kind": (pa.array(["pet"]).dictionary_encode(), "pet"),
        "tags": (pa.array([["a", "b"]]), ["a", "b"]),
        "day": (pa.array([new_year.date()]), "2024-01-01"),
        "when": (pa.array([new_year], pa.timestamp("ns")), "2024-01-01T00:00:00"),
        "where": (pa.array([new_year], pa.timestamp("s", "Asia/Tokyo")), "2024-01-01T00:00:00Z"),
    }
    not_read = {"picture": pa.array([b"\xff"]), "embedding": pa.array([[0.5]]), "empty": nothing, "parts": [{"a": 1}]}
    columns = {"_id": ["1"], "text": ["A cat."], **{name: column for name, (column, _) in further.items()}, **not_read}
    pq.write_table(pa.table({**columns, "__index_level_0__": [7]}), tmp_path / "x")
    expected = {name: value for name, (_, value) in further.items() if value is not None}
    assert list(read_documents(tmp_path / "x")) == [Document("1", "A cat.", metadata=expected)]
    assert not caplog.records


def test_numbers_without_a_value_in_json_are_malformed_in_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"_id": ["1", "2"], "text": ["a", "b"], "share": [0.5, math.inf]}), tmp_path / "x")
    with pytest.raises(BadRecord, match="x:2: the metadata of 2 cannot be written as JSON"):
        list(read_documents(tmp_path / "x"))


def test_a_moment_that_python_cannot_hold_costs_its_own_row_alone(tmp_path: Path) -> None:
    when = pa.array([0, 2**62, None], pa.timestamp("us"))
    pq.write_table(pa.table({"_id": ["1", "2", "3"], "text": ["a", "b", "c"], "when": when}), tmp_path / "x")
    problems = Problems(skip_bad=True)
    expected = [Document("1", "a", metadata={"when": "1970-01-01T00:00:00"}), Document("3", "c")]
    assert list(read_documents(tmp_path / "x", problems)) == expected
    assert [line.rpartition(": ")[2] for line in problems.examples] == [
        "when holds a value that Python cannot hold; write the column again as strings"
    ]


def test_further_columns_that_take_too_much_memory_are_left_out_and_named(tmp_path: Path, caplog: Any) -> None:
    table = pa.table({"_id": ["1"], "text": ["A cat."], **{f"column {number}": [1] for number in range(300)}})
    pq.write_table(table, tmp_path / "x")
    assert list(read_documents(tmp_path / "x")) == [Document("1", "A cat.")]
    [said] = [record.getMessage() for record in caplog.records]
    assert re.search(
        "the columns column 0, column 1, .*, … are not read as metadata, since the columns have 302 parts", said
    )


def test_two_columns_of_one_name_are_refused(put: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table([["1"], ["a"], ["b"]], names=["_id", "text", "text"]), tmp_path / "y")
    for path in (tmp_path / "y", put("id\ttext\ttext\n1\ta\tb\n")):
        with pytest.raises(DataError, match="2 columns are called text; give every column its own name"):
            list(read_documents(path))


def test_the_names_of_columns_may_be_quoted_hold_the_delimiter_and_keep_their_case(put: Any) -> None:
    table = ',ID,"Text, as found",Text,"Year"\n0,1,x;y,"a, b",1999\n'  # pandas gives its numbers of rows no name
    expected = Document("1", "a, b", metadata={"Text, as found": "x;y", "Year": "1999"})
    assert list(read_documents(put(table))) == [expected]


def test_parquet_of_queries_and_qrels(tmp_path: Path) -> None:
    path = tmp_path / "queries"
    pq.write_table(pa.table({"_id": ["q1"], "question": ["What?"], "answers": [["cat"]]}), path)
    assert list(read_queries(path)) == [Query("q1", "What?", ("cat",))]
    path = tmp_path / "qrels"
    pq.write_table(pa.table({"query-id": ["q1"], "corpus-id": ["d1"], "score": [1.0]}), path)
    assert sniff(path).roles == (Role.QRELS,)
    assert read_qrels(path) == {"q1": {"d1": 1}}


def test_a_folder_of_part_files_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        pq.write_table(pa.table({"_id": [f"d{number}"], "text": ["x"]}), tmp_path / f"part-{number}.parquet")
    assert [document.id for document in read_documents(tmp_path)] == ["d0", "d1", "d2"]


def test_an_id_may_occur_in_one_part_only(put: Any) -> None:
    put(jsonl({"_id": "d1", "title": "", "text": "a"}), "shards/a.jsonl")
    put(jsonl({"_id": "d1", "title": "", "text": "b"}), "shards/b.jsonl")
    with pytest.raises(DataError, match=r"b\.jsonl:1: a second document with the id d1"):
        list(read_documents(put("", "shards/.hidden").parent))


def test_a_folder_of_texts(put: Any) -> None:
    put("Intro\n\n# Travel costs #\n\nAsk first.", "notes/travel.md")
    put("Holidays\n========\nThirty days.", "notes/hr/holidays.md")
    put("---\ntitle: x\n---\nNo heading.", "notes/hr/plain.txt")
    put("ignored", "notes/.git/config.txt")
    folder = put("ignored", "notes/image.png").parent
    assert [(document.id, document.title) for document in read_documents(folder)] == [
        ("travel.md", "Travel costs"),
        ("hr/holidays.md", "Holidays"),
        ("hr/plain.txt", "x"),
    ]
    assert next(read_documents(folder)).text == "Intro\n\n# Travel costs #\n\nAsk first."


def test_expansions(put: Any) -> None:
    path = put(jsonl({"_id": "d1", "texts": ["a", "b"]}, {"_id": 2, "texts": []}))
    assert sniff(path).roles == (Role.EXPANSIONS,)
    assert list(read_expansions(path)) == [("d1", ("a", "b")), ("2", ())]


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pa.compress(data, codec="zstd", asbytes=True)])
def test_compressed_files_are_recognised_too(pack: Any, put: Any) -> None:
    assert sniff(put(pack(json.dumps(SQUAD).encode()))).format is Format.SQUAD
    assert read_qrels(put(pack(b"q1 0 d1 1\n"))) == {"q1": {"d1": 1}}


@pytest.mark.parametrize("name", ["d1", "d1 ", "\u3000", "e\u0301"])
def test_text_is_normalised_everywhere(name: str, put: Any) -> None:
    """An id is written in one way in the corpus and in another in the qrels: it is the same id."""
    composed = normalise(name)
    if not name.strip():
        with pytest.raises(DataError, match="id is empty"):
            read_qrels(put(f"{name}\t0\td\t1\n"))
        return
    assert read_qrels(put(f"{name}\t0\t{name}\t1\n")) == {composed: {composed: 1}}
    assert list(read_run(put(f"{name}\tQ0\t{name}\t1\t1\tx\n"))) == [composed]


def test_problems_keep_the_first_few_examples(put: Any) -> None:
    problems = Problems(skip_bad=True)
    path = put(jsonl({"_id": "d1", "title": "", "text": "a"}, *({"text": "no id"} for _ in range(30))))
    assert len(list(read_documents(path, problems))) == 1
    assert (problems.count, len(problems.examples)) == (30, 10)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("once upon a time\nthere was a cat\n", None),
        ('{"source": "somewhere", "licence": "free"}', None),
        ("a,b,c\n1,2,3\n", None),
        ("[]", (Role.DOCUMENTS,)),
    ],
)
def test_what_is_no_data_is_not_taken_for_it(text: str, roles: Any, put: Any) -> None:
    kind = recognise(put(text))
    assert (kind.roles if kind else None) == roles


@pytest.mark.parametrize("name", ["queries.jsonl", "queries/test.jsonl"])
def test_queries_may_have_a_title(name: str, put: Any) -> None:
    """As on the Hugging Face Hub, where the queries of BEIR are `_id, title, text` with an empty title."""
    path = put(jsonl({"_id": "q1", "title": "", "text": "cats?"}), name)
    assert sniff(path).roles == (Role.QUERIES,)
    assert sniff(put(jsonl({"_id": "q1", "title": "Cats", "text": "cats?"}), name)).roles == (Role.QUERIES,)
    pq.write_table(pa.table({"_id": ["q1"], "title": [""], "text": ["cats?"]}), path)
    assert sniff(path).roles == (Role.QUERIES,)


def test_a_title_means_documents_where_the_name_says_no_more(put: Any) -> None:
    titled, untitled = ({"_id": "1", "title": title, "text": "x"} for title in ("Cats", ""))
    assert sniff(put(jsonl(titled), "topical-articles.jsonl")).roles == (Role.DOCUMENTS,)
    assert sniff(put(jsonl(untitled), "topics.jsonl")).roles == (Role.QUERIES,)
    assert sniff(put(jsonl(untitled), "queries/corpus.jsonl")).roles == (Role.DOCUMENTS,)


@pytest.mark.parametrize("key", ["abstract", "description", "summary", "article", "document", "paragraph", "Context"])
def test_texts_have_many_names(key: str, put: Any) -> None:
    path = put(jsonl({"uuid": "d1", "Title": "Cats", key: "A cat.", "text": None, "year": 7}))
    assert list(read_documents(path)) == [Document("d1", "A cat.", "Cats", metadata={"year": 7})]


def test_a_text_may_be_a_list_of_sentences(put: Any) -> None:
    path = put(jsonl({"doc_id": 1, "title": "Cats", "abstract": ["A cat.", "It purrs."]}))
    assert list(read_documents(path)) == [Document("1", "A cat. It purrs.", "Cats")]


def test_the_case_of_a_name_does_not_matter(put: Any, tmp_path: Path) -> None:
    assert list(read_documents(put("ID\tTitle\tText\n1\tCats\tA cat.\n"))) == [Document("1", "A cat.", "Cats")]
    pq.write_table(pa.table({"ID": [1], "Title": ["Cats"], "TEXT": ["A cat."]}), tmp_path / "y")
    assert list(read_documents(tmp_path / "y")) == [Document("1", "A cat.", "Cats")]
    assert list(read_queries(put(jsonl({"QID": 1, "Query": "cats?"})))) == [Query("1", "cats?")]


def test_a_parquet_structure_is_no_text_and_empty_metadata_is_none(tmp_path: Path) -> None:
    columns = {"_id": ["1"], "text": ["A cat."], "document": [{"html": "<p>"}], "metadata": [""]}
    pq.write_table(pa.table(columns), tmp_path / "x")
    assert list(read_documents(tmp_path / "x")) == [Document("1", "A cat.")]


def test_a_missing_id_names_those_that_are_known(put: Any) -> None:
    with pytest.raises(DataError, match=r"the id is missing; give every record an id, called _id, id, .* or uuid"):
        list(read_documents(put(jsonl({"key": "d1", "body": "x"}))))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("```sh\n# a comment\n```\n# Title", "Title"),
        ("~~~\n```\n# a comment\n~~~\n## About C# ##\n", "About C#"),
        ("#tag\n####### seven\n# #\nno heading", "x"),
        ("  \n===\nno heading", "x"),
        ("\n" * 300 + "# Too late", "x"),
    ],
)
def test_the_first_heading_is_the_title(text: str, title: str, put: Any) -> None:
    folder = put(text, "notes/x.md").parent
    assert [document.title for document in read_documents(folder)] == [title]


def test_titles_are_found_in_linear_time(put: Any) -> None:
    folder = put("# a" + " " * 300_000 + "b\n" + "x" + " " * 300_000 + "\n" * 300_000, "notes/x.md").parent
    start = time.perf_counter()
    assert len(list(read_documents(folder))) == 1
    assert time.perf_counter() - start < 2, "the square of the length takes minutes"


def test_a_text_file_alone_is_a_document(put: Any) -> None:
    path = put("q1 0 d1 1\nq1 0 d2 1\n", "1.md")
    assert recognise(path) is None
    assert list(read_documents(path)) == [Document("1.md", "q1 0 d1 1\nq1 0 d2 1\n", "1")]
    assert list(read_documents(put("A cat.", "cat.txt"))) == [Document("cat.txt", "A cat.", "cat")]
    assert sniff(put("q1 0 d1 1\n", "x.txt")).roles == (Role.QRELS,)
    with pytest.raises(DataError, match=r"cat.txt is plain text \(documents\), not queries"):
        read_queries(put("A cat.", "cat.txt"))


@pytest.mark.parametrize(
    "text",
    [
        "id\ttext\tyear\n1\tA cat.\t1999\n2\tA dog.\t7\n",
        "ID,Text,year\n1,A cat.,1999\n2,A dog.,7\n",
        '"id";"text";"year"\r\n1;"A cat.";1999\r\n2;"A dog.";7\r\n',
        "id|text|year\n1|A cat.|1999\n2|A dog.|7\n",
        '|id|"text"|year\n0|1|"A cat."|1999\n1|2|A dog.|7\n',
        "id\ttext\tyear\ta\tb\tc\n1\tA cat.\t1999\t1\t2\t3\n2\tA dog.\t7\t1\t2\t3\n",
    ],
)
def test_a_header_says_what_a_table_is(text: str, put: Any) -> None:
    path = put(text)
    assert sniff(path).format is Format.TABLE
    found = list(read_documents(path))
    assert [(document.id, document.text, document.metadata["year"]) for document in found] == [
        ("1", "A cat.", "1999"),
        ("2", "A dog.", "7"),
    ]


def test_cells_between_pipes_may_hold_all_other_separators(put: Any) -> None:
    path = put('id|text|title\n1|"A, cat; a|dog"|Pets, both\n2|short\n', "docs.csv")
    problems = Problems(skip_bad=True)
    assert list(read_documents(path, problems)) == [Document("1", "A, cat; a|dog", "Pets, both")]
    assert problems.examples == [
        f"{path}:3: the line has 2 columns instead of 3; |-separated columns are: id, text, title"
    ]
    assert sniff(put("id|question\n1|which cat, or dog?\n")).roles == (Role.QUERIES,)
    assert read_qrels(put("query-id|corpus-id|score\nq1|d1|1\n")) == {"q1": {"d1": 1}}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("| id | text |\n| --- | --- |\n| 1 | A cat. |\n", "notes.txt"),
        ("id | text\n--- | ---\n1 | A cat.\n", "notes.txt"),
        ("id|text\n1|A cat.\n", "notes.md"),
    ],
)
def test_a_table_that_is_drawn_in_a_text_is_text(text: str, name: str, put: Any) -> None:
    assert sniff(put(text, name)).format is Format.TEXT
    assert len(list(read_documents(put(text, name)))) == 1


def test_a_table_that_is_drawn_is_no_table_under_other_names(put: Any) -> None:
    assert recognise(put("| id | text |\n| --- | --- |\n| 1 | A cat. |\n", "notes.log")) is None


@pytest.mark.parametrize(
    "text",
    [
        "QueryID DocID Score\nq1 d1 1\n",
        '"query-id"\t"corpus-id"\t"score"\n"q1"\t"d1"\t"1"\n',
        '"query-id","corpus-id","score"\n"q1","d1",1\n',
    ],
)
def test_headers_of_qrels(text: str, put: Any) -> None:
    path = put(text)
    assert sniff(path).roles == (Role.QRELS,)
    assert read_qrels(path) == {"q1": {"d1": 1}}


def test_quotes_are_part_of_ids_where_the_header_has_none(put: Any) -> None:
    assert read_qrels(put('query-id\tcorpus-id\tscore\n"q1"\td1\t1\n')) == {'"q1"': {"d1": 1}}


@pytest.mark.parametrize(
    "text",
    [
        "121352\t2912791\t7135700\n634306\t1723417\t4011237\n",  # MS MARCO's triples: query, relevant, not
        "1\tA cat.\t1999\n2\tA dog.\t2004\n",
        "a b c d 1.5 e\nf g h i 2.5 j\n",
    ],
)
def test_numbers_alone_make_no_judgements_and_no_run(text: str, put: Any) -> None:
    assert recognise(put(text)) is None


def test_cells_may_hold_line_breaks(put: Any) -> None:
    rows = ['1,"one\n\ntwo, ""three""",x', "2,plain,y", '3,"A" and "B",z', '4,5" pipe,w', '5,"last\nline",v']
    documents = list(read_documents(put("\n".join(["id,text,note", *rows]))))
    assert [document.text for document in documents][:2] == ['one\n\ntwo, "three"', "plain"]
    assert [document.text for document in documents][3:] == ['5" pipe', "last\nline"]
    assert [document.metadata["note"] for document in documents] == list("xyzwv")


def test_cells_of_excel_may_hold_line_breaks(put: Any) -> None:
    rows = ['1\t"one\n\ttwo"\tx', '2\ty\t"three\nfour"', '3\t"\tX', '4\t"\tY', '5\tz\t"open', "6\ta\tb"]
    documents = list(read_documents(put("\n".join(["id\ttext\ttitle", *rows]))))
    assert [(document.text, document.title) for document in documents] == [
        ("one\n\ttwo", "x"),
        ("y", "three\nfour"),
        ('"', "X"),
        ('"', "Y"),
        ("z", '"open'),
        ("a", "b"),
    ]


def test_lines_are_counted_through_cells_with_breaks(put: Any) -> None:
    path = put('id,text\n1,"a\n\nb"\n2,c,d\n3,"' + "x" * 200_000 + '"\n4,"open\n5,e\n')
    problems = Problems(skip_bad=True)
    assert [document.id for document in read_documents(path, problems)] == ["1", "3", "5"]
    assert [example.split("; ")[0].split(":", 1)[1] for example in problems.examples] == [
        "5: the line has 3 columns instead of 2",
        "7: a quoted cell is not closed",
    ]


def test_topics_in_xml(put: Any) -> None:
    text = """<?xml version="1.0"?>
<topics task="covid">
  <topic number="1">
    <query>coronavirus origin</query>
    <question>what is its origin</question>
    <narrative>Any &amp; all.</narrative>
    <subtopic number="1" type="inf">where from</subtopic>
  </topic>
  <topic number="2" type="x">
    A woman of 45 years.
  </topic>
</topics>
"""
    path = put(text)
    assert sniff(path).format is Format.TOPICS
    assert list(read_queries(path)) == [
        Query("1", "coronavirus origin", metadata={"question": "what is its origin", "narrative": "Any & all."}),
        Query("2", "A woman of 45 years."),
    ]


def test_what_is_lost_behind_a_broken_item_is_said(put: Any) -> None:
    problems = Problems(skip_bad=True)
    path = put('[{"_id": "1", "text": "a"}, {"_id": 2', "corpus.json")
    assert len(list(read_documents(path, problems))) == 1
    assert "and the rest of the file is missing; " in problems.examples[0]


def test_squad_in_parquet(tmp_path: Path) -> None:
    columns = {
        "id": ["q1", "q2", "q3"],
        "title": ["Super_Bowl", "Super_Bowl", "Super_Bowl"],
        "context": ["The Broncos won.", "The Broncos won.", "It was in 2016."],
        "question": ["Who won?", "Who lost?", "When?"],
        "answers": [
            {"text": ["Broncos", "Broncos"], "answer_start": [4, 4]},
            {"text": [], "answer_start": []},
            {"text": ["2016"], "answer_start": [10]},
        ],
    }
    path = tmp_path / "train-00000-of-00001.parquet"
    pq.write_table(pa.table(columns), path)
    assert sniff(path).format is Format.PARQUET_SQUAD
    won, year = read_documents(path)
    assert [(one.text, one.title) for one in (won, year)] == [
        ("The Broncos won.", "Super Bowl"),
        ("It was in 2016.", "Super Bowl"),
    ]
    assert [query.answers for query in read_queries(path)] == [("Broncos",), (), ("2016",)]
    assert read_qrels(path) == {"q1": {won.id: 1}, "q2": {won.id: 1}, "q3": {year.id: 1}}


DELTAS = {"_id": "DELTA_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY"}
PARQUETS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionaries": {"compression": "snappy"},
    "mixed": {"dictionary_pagesize_limit": 2000, "compression": "gzip"},
    "newer pages": {"data_page_version": "2.0", "compression": "zstd", "data_page_size": 1000},
    "newer pages as they are": {"data_page_version": "2.0", "compression": "none"},
    "deltas": {"use_dictionary": False, "column_encoding": DELTAS},
    "small pages": {"data_page_size": 64, "write_batch_size": 2, "row_group_size": 77, "compression": "brotli"},
    "one large page": {"data_page_size": 2**30, "write_batch_size": 2**20, "use_dictionary": False},
}


@pytest.mark.parametrize("options", PARQUETS.values(), ids=PARQUETS)
@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("window", [2**10, 2**26], ids=["little memory", "enough memory"])
def test_parquet_of_every_encoding(
    options: dict[str, Any], nullable: bool, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so little may be decoded at once that pages are looked into before."""
    monkeypatch.setattr(parquet_pages, "_WINDOW", window)
    rows = [(f"d{n}", f"text {n % 50} " * (n % 9), ["a", f"answer {n % 7}"][: n % 3]) for n in range(500)]
    fields = [pa.field("_id", pa.string(), nullable), pa.field("text", pa.string(), nullable)]
    schema = pa.schema([*fields, pa.field("expansions", pa.list_(pa.string()))])
    path = tmp_path / "corpus.parquet"
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, schema), path, **options)
    expected = [Document(key, text, expansions=tuple(more)) for key, text, more in rows]
    assert list(read_documents(path)) == expected


def test_parquet_whose_levels_are_said_to_be_packed_otherwise_where_there_are_none(tmp_path: Path) -> None:
    """As parquet-mr, and so Spark, writes it."""
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("_id", "text")])
    table = pa.Table.from_arrays([pa.array(["d1", "d2"]), pa.array(["a", "b"])], schema=schema)
    path = tmp_path / "corpus.parquet"
    pq.write_table(table, path, use_dictionary=False, compression="none", column_encoding="DELTA_LENGTH_BYTE_ARRAY")
    data = path.read_bytes()
    assert data.count(b"\x15\x0c\x15\x06\x15\x06") == 2  # the encoding, and twice RLE
    path.write_bytes(data.replace(b"\x15\x0c\x15\x06\x15\x06", b"\x15\x0c\x15\x08\x15\x08"))
    assert [document.text for document in read_documents(path)] == ["a", "b"]


def test_ids_made_of_titles_are_clean(put: Any, tmp_path: Path) -> None:
    squad = {"data": [{"title": "a\tb", "paragraphs": [{"context": "c", "qas": [{"id": "q1", "question": "d?"}]}]}]}
    with pytest.raises(DataError, match="holds a tab or line break"):
        read_qrels(put(squad))
    rows = [{"id": "q1", "title": "a\nb", "context": "c", "question": "d?", "answers": {"text": ["e"]}}]
    path = tmp_path / "squad.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    for read in (read_documents, read_qrels):
        with pytest.raises(DataError, match="holds a tab or line break"):
            list(read(path))


def test_a_label_is_left_out_only_where_it_begins_a_field(put: Any) -> None:
    path = put("<top>\n<num> Number: 7\n<title> Topic: the number: seven\n</top>\n")
    assert list(read_queries(path)) == [Query("7", "the number: seven")]


@pytest.mark.parametrize("kind", ["string_view", "large_string", "dictionary"])
def test_long_texts_of_every_type_of_arrow(kind: str, tmp_path: Path) -> None:
    texts = pa.array([chr(97 + n % 26) * 50_000 for n in range(600)])
    column = texts.dictionary_encode() if kind == "dictionary" else texts.cast(kind)
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"_id": [f"d{n}" for n in range(600)], "text": column}), path, use_dictionary=False)
    assert [document.text for document in read_documents(path)] == texts.to_pylist()


def test_training_data_of_dsi_is_documents_questions_and_judgements(put: Any) -> None:
    path = put("\n".join(map(json.dumps, DSI_LINES)), "marco_DSI_train_data.json")
    assert sniff(path).roles == (Role.DOCUMENTS, Role.QUERIES, Role.QRELS)
    assert [*read_documents(path)] == [Document("17", "Pour boiling water.", "Tea"), Document("4", "Knead the dough.")]
    assert [*read_queries(path)] == [Query("marco_DSI_train_data-2", "how is tea made")]
    assert read_qrels(path) == {"marco_DSI_train_data-2": {"17": 1}}


def test_questions_that_dsi_has_written_are_expansions(put: Any) -> None:
    lines = [{"text_id": 17, "text": "brew tea"}, {"text_id": 4, "text": "bake"}, {"text_id": 17, "text": "hot water"}]
    path = put("\n".join(map(json.dumps, lines)), "corpus.tsv.q10.docTquery")
    assert sniff(path).roles == (Role.EXPANSIONS,)
    assert [*read_expansions(path)] == [("17", ("brew tea",)), ("4", ("bake",)), ("17", ("hot water",))]


def test_bad_lines_of_dsi_are_told_with_their_places(put: Any) -> None:
    lines = [json.dumps(DSI_LINES[1]), '{"text_id": null, "text": "Question: x"}', '{"text_id": 1, "text": 5}', "{"]
    path = put("\n".join(lines))
    with pytest.raises(DataError, match="x:2: the text_id is missing"):
        [*read_queries(path)]
    problems = Problems(skip_bad=True)
    assert len([*read_queries(path, problems)]) == 1
    assert problems.count == 3
