"""What the page asks for besides searches: docids below a prefix, and tables of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.retrievers.contract import dataset
from tests.serve.running import Running, bm25, options, running
from triever import DocidTuning, Generative, Semantic
from triever.serve.result_tables import result_tables

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=1000"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generative() -> Generative:
    made = Generative(backbone=SMALL, training=DocidTuning(steps=0), docids=Semantic(branch=3, leaf=3))
    return made.fit(dataset())


@pytest.fixture(scope="module")
def server(generative: Generative) -> Iterator[Running]:
    with running({"words": bm25(), "docids/own": generative}) as server:
        yield server


def test_docids_are_those_that_the_retriever_browses(server: Running, generative: Generative) -> None:
    path, waiting, seen = "/v1/retrievers/docids/own/docids", [()], 0
    while waiting:
        prefix = waiting.pop()
        own = generative.browse(prefix, samples=2, limit=1000).to_dict()
        answer = server.client.get(path, params={"prefix": [*prefix], "samples": 2, "limit": 1000})
        assert answer.status_code == 200, answer.text
        assert own.items() <= answer.json().items()
        waiting += [(*prefix, branch["symbol"]) for branch in own["branches"] if not branch["ends"]]
        seen += sum(branch["documents"] for branch in own["branches"] if branch["ends"])
    assert seen == len(generative)


def test_docids_come_in_pages(server: Running) -> None:
    path = "/v1/retrievers/docids/own/docids"
    whole = server.client.get(path).json()
    pages = [server.client.get(path, params={"offset": at, "limit": 1}).json() for at in range(whole["total"])]
    assert [branch for page in pages for branch in page["branches"]] == whole["branches"]


@pytest.mark.parametrize(
    ("path", "status", "code", "hint"),
    [
        ("/v1/retrievers/words/docids", 422, "invalid_request", "generative"),
        ("/v1/retrievers/nobody/docids", 404, "unknown_retriever", ""),
        ("/v1/retrievers/docids/own/docids?prefix=99", 422, "invalid_request", "'0'"),
        ("/v1/retrievers/docids/own/docids?prefix=x", 422, "invalid_request", ""),
        ("/v1/retrievers/docids/own/docids?limit=0", 422, "invalid_request", ""),
    ],
)
def test_what_cannot_be_browsed_is_refused(server: Running, path: str, status: int, code: str, hint: str) -> None:
    answer = server.client.get(path)
    assert answer.status_code == status
    assert answer.json()["code"] == code
    assert hint in answer.json()["hint"]


def test_retrievers_say_whether_they_have_docids_and_what_they_were_fitted_to(server: Running) -> None:
    words, docids = server.client.get("/v1/retrievers").json()["retrievers"]
    assert (words["docids"], words["data"]) == (False, "contract")
    assert (docids["docids"], docids["data"]) == (True, "contract")


def test_without_a_folder_of_results_there_are_none(server: Running) -> None:
    assert server.client.get("/v1/results").json() == {"given": False, "tables": []}


def test_tables_have_the_numbers_of_their_files() -> None:
    tables = {(table["name"], table["split"]): table for table in result_tables(ROOT / "results")}
    compared = tables["bm25/python-test", "test"]
    report = json.loads((ROOT / "results/bm25/python-test.json").read_text())["report"]
    for row in compared["rows"]:
        for measure, score in row["scores"].items():
            own = report["scores"][row["name"]][measure]
            assert score == {"mean": own["mean"], "low": own["low"], "high": own["high"]}
    recipe = tables["rows/python, mini", "test"]
    (semantic,) = [row for row in recipe["rows"] if row["name"] == "semantic"]
    files = [json.loads((ROOT / f"results/rows/python/mini/semantic-seed{seed}.json").read_text()) for seed in range(3)]
    means = [file["reports"]["test"]["scores"]["semantic"]["Success@1"]["mean"] for file in files]
    assert semantic["scores"]["Success@1"]["mean"] == pytest.approx(sum(means) / 3)
    assert (semantic["scores"]["Success@1"]["low"], semantic["scores"]["Success@1"]["high"]) == (min(means), max(means))
    assert {order["verdict"] for order in recipe["orders"]} <= {
        "holds",
        "does not hold",
        "cannot be told",
        "not measured",
    }


def test_results_that_changed_are_read_again_and_damaged_ones_name_no_file(tmp_path: Path) -> None:
    result = json.loads((ROOT / "results/bm25/python-test.json").read_text())
    (tmp_path / "one.json").write_text(json.dumps(result))
    with running({"words": bm25()}, options(results=str(tmp_path))) as server:
        assert [table["name"] for table in server.client.get("/v1/results").json()["tables"]] == ["one"]
        (tmp_path / "two.json").write_text(json.dumps(result))
        assert [table["name"] for table in server.client.get("/v1/results").json()["tables"]] == ["one", "two"]
        (tmp_path / "two.json").write_text(json.dumps({**result, "report": {"format": 9}}))
        answer = server.client.get("/v1/results")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert str(tmp_path) not in answer.text
