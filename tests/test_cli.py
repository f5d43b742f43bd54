"""The command line as a person meets it: a real process, its output, its exit code."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.cli_page import render
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, dataset
from tests.retrievers.gdr_cases import questions
from tests.warm import run
from triever import DataError, Dataset, Document, Query, UsageError, artifact, cli
from triever.commands.learn import _outcome
from triever.commands.shared import check_parents
from triever.data.writers import write_dataset, write_documents
from triever.lab.docids import describe_docids
from triever.retriever import KINDS, load

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset `toy`, new documents, and a fitted model `model`."""
    root = tmp_path_factory.mktemp("cli")
    write_dataset(root / "toy", dataset())
    write_documents(root / "new.jsonl", [type(DOCUMENTS[0])("volcano", "Molten lava.", "Volcanoes")])
    (root / "other.run").write_text("q1 Q0 x1 1 2.0 t\nq1 Q0 x2 2 1.0 t\n")
    (root / "questions.run").write_text("x1 Q0 tea 1 2.0 t\n")
    done = triever(root, "fit", "bm25", "--data", "toy", "--out", "model")
    assert done.returncode == 0, done.stderr
    return root


def triever(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", **variables}
    return run(words, folder, environment)


def ok(folder: Path, *words: str, **variables: str) -> str:
    done = triever(folder, *words, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_info_as_a_table_and_as_json(folder: Path) -> None:
    assert "documents" in ok(folder, "data", "info", "toy")
    found = json.loads(ok(folder, "data", "info", "toy", "--json"))
    assert found["documents"] == len(DOCUMENTS)
    assert found["splits"]["test"]["queries"] == len(QUERIES)


def test_names_are_found_under_triever_data(folder: Path) -> None:
    found = json.loads(ok(folder.parent, "data", "info", "toy", "--json", TRIEVER_DATA=str(folder)))
    assert found["name"] == "toy"


@pytest.mark.parametrize("layout", ["beir", "parquet", "msmarco"])
def test_convert_and_back_keeps_documents_and_judgements(folder: Path, layout: str) -> None:
    ok(folder, "data", "convert", "toy", f"to-{layout}", "--to", layout)
    found = json.loads(ok(folder, "data", "info", f"to-{layout}", "--json"))
    assert found["documents"] == len(DOCUMENTS)
    assert found["splits"]["test"]["judged pairs"] == len(QRELS)


def test_sample(folder: Path) -> None:
    ok(folder, "data", "sample", "toy", "small", "--documents", "5")
    assert json.loads(ok(folder, "data", "info", "small", "--json"))["documents"] == 5


def test_search_and_explain(folder: Path) -> None:
    rows = json.loads(ok(folder, "search", "model", "boiling water for tea leaves", "-k", "2", "--json"))
    assert [row["rank"] for row in rows] == [1, 2]
    assert rows[0]["id"] == "tea"
    assert "How to brew tea" in ok(folder, "search", "model", "tea leaves")
    assert "boil" in ok(folder, "explain", "model", "boiling water", "-k", "1")
    assert json.loads(ok(folder, "explain", "model", "boiling water", "--json"))["hits"][0]["parts"]


def test_hits_can_be_read(folder: Path) -> None:
    shown = ok(folder, "search", "model", "boiling water for tea leaves", "-k", "2", "--text")
    assert shown.startswith(" 1. How to brew tea  tea  ")
    assert "\n    Pour boiling water over the leaves and wait four minutes.\n\n 2. " in shown
    (first, *_) = json.loads(ok(folder, "search", "model", "boiling water for tea leaves", "--json"))
    assert first["snippet"] == "Pour boiling water over the leaves and wait four minutes."
    assert first["metadata"] == {"name": "tea", "words": 10}
    assert "text" not in first
    (first, *_) = json.loads(ok(folder, "search", "model", "tea leaves", "--json", "--text"))
    assert first["text"].startswith("Pour boiling water")


def piped(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that reads a text from its standard input."""
    code = [sys.executable, "-c", "from triever.cli import main; main()", *words]
    return subprocess.run(code, cwd=folder, input=text, capture_output=True, text=True, check=False)


def test_queries_come_from_standard_input(folder: Path) -> None:
    asked = piped(folder, "tea leaves\n\nknead the dough\n", "search", "model", "-", "-k", "1", "--json")
    lines = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [line["query"] for line in lines] == ["tea leaves", "knead the dough"]
    assert [line["hits"][0]["id"] for line in lines] == ["tea", "bread"]
    shown = piped(folder, "tea leaves\n", "search", "model", "-", "-k", "1").stdout
    assert shown.startswith("== tea leaves\n")
    assert "How to brew tea" in shown
    missing = piped(folder, "", "search", "model")
    assert missing.returncode == 2
    assert missing.stderr == "triever: there is no query; give one, or - to read one from each line of standard input\n"


def test_long_titles_are_cut_in_tables_and_whole_in_json(folder: Path) -> None:
    title = "very long words " * 60
    judged = Dataset.of("long", [Document("a", "a cat", title)], [Query("q", "cat")], {"test": {"q": {"a": 1}}})
    write_dataset(folder / "long", judged)
    ok(folder, "fit", "bm25", "--data", "long", "--out", "long model")
    shown = ok(folder, "search", "long model", "cat")
    assert max(map(len, shown.splitlines())) < 120
    assert "very long words very" in shown
    assert json.loads(ok(folder, "search", "long model", "cat", "--json"))[0]["title"] == title


def test_a_search_is_filtered(folder: Path) -> None:
    found = json.loads(ok(folder, "search", "model", "boiling water", "--where", "words>=11", "--json"))
    assert found
    assert all(hit["metadata"]["words"] >= 11 for hit in found)
    assert "tea" not in ok(folder, "explain", "model", "boiling water", "--where", "name!=tea")
    for wrong, message in (("wrds>1", "did you mean words"), ("words", "is no condition")):
        refused = triever(folder, "search", "model", "water", "--where", wrong)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_a_saved_generative_retriever_is_searched_in_another_way(folder: Path) -> None:
    settings = ("--set", SMALL, "--set", "training.steps=0", "--set", "docids=naive")
    ok(folder, "fit", "generative", "--data", "toy", "--out", "written", *settings)
    words, exact = ("written", "boiling water", "-k", "1"), ("--set", "search_options.method=exact")
    assert "prefixes opened" in triever(folder, "search", *words, *exact).stderr  # what an exact search says
    refused = triever(folder, "search", *words, "--set", "docids=atomic")
    assert refused.returncode == 2
    assert refused.stderr.startswith("triever: docids of a generative retriever cannot be changed after it is fitted; ")
    assert triever(folder, "search", "model", "water", "--set", "k1=2").returncode == 2


def test_run_then_evaluate_gives_what_compare_gives(folder: Path) -> None:
    ok(folder, "run", "model", "toy", "--split", "test", "--out", "x.run")
    measures = ("-m", "nDCG@10", "-m", "Success@1")
    alone = json.loads(ok(folder, "evaluate", "x.run", "toy", *measures, "--json"))
    together = json.loads(ok(folder, "compare", "model", "fresh=bm25", "--data", "toy", *measures, "--json"))
    assert set(together["scores"]) == {"model", "fresh"}
    for measure in ("nDCG@10", "Success@1"):
        expected = alone["scores"]["x"][measure]["mean"]
        assert together["scores"]["model"][measure]["mean"] == expected
        assert together["scores"]["fresh"][measure]["mean"] == expected


def test_a_file_of_another_kind_is_not_replaced(folder: Path) -> None:
    before = (folder / "toy" / "corpus.jsonl.gz").read_bytes()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "mine"}\n')
    tiny = (
        "--set",
        "backbone=scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=500",
        "--set",
        "training.steps=1",
    )
    for out in ("corpus.jsonl", "toy/corpus.jsonl.gz"):
        for kind, words in (
            ("TREC run", ("run", "model", "toy")),
            ("file of written questions", ("write-queries", "toy", *tiny)),
        ):
            done = triever(folder, *words, "--out", out)
            assert done.returncode == 2
            assert (
                f"{out} is there already and is no {kind}; name another file, or remove this one first" in done.stderr
            )
    assert (folder / "corpus.jsonl").read_text() == '{"_id": "a", "text": "mine"}\n'
    assert (folder / "toy" / "corpus.jsonl.gz").read_bytes() == before
    for again in ("again.run", "again.run.gz", "again.run.zst") * 2:  # a run may be written anew
        ok(folder, "run", "model", "toy", "--out", again)


@pytest.mark.parametrize("command", [("compare", "model"), ("analyse", "seen", "model"), ("bench", "search", "model")])
def test_a_result_replaces_results_alone(command: tuple[str, ...], folder: Path) -> None:
    words = (*command, "--data", "toy", *(["-m", "Success@1"] if command[0] == "compare" else []))
    question = '{"_id": "q1", "text": "mine"}\n'
    (folder / "questions.jsonl").write_text(question)
    (folder / "mine.json").write_text('{"title": "mine"}')
    (folder / "notes.svg").write_text("notes")
    for option, name, kind in (
        ("--out", "questions.jsonl", "result of Triever"),
        ("--out", "mine.json", "result of Triever"),
        ("--plot", "notes.svg", "picture"),
    ):
        done = triever(folder, *words, option, name)
        assert done.returncode == 2
        assert f"{name} is there already and is no {kind}; name another file, or remove this one" in done.stderr
    same = triever(folder, *words, "--plot", "same.svg", "--out", "same.svg")
    assert same.returncode == 2
    assert "--plot and --out both name same.svg; give each a file of its own" in same.stderr
    assert (folder / "questions.jsonl").read_text() == question
    assert (folder / "notes.svg").read_text() == "notes"
    for _ in range(2):  # results and pictures may be made anew
        ok(folder, *words, "--out", "own.json", "--plot", "own.svg")


def test_what_nothing_was_learned_from_has_nothing_seen(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "toy", tmp_path / "graded")
    judged = f"query-id\tcorpus-id\tscore\n{QUERIES[0].id}\t{DOCUMENTS[0].id}\t0\n"
    (tmp_path / "graded" / "qrels" / "none.tsv").write_text(judged)
    done = triever(tmp_path, "analyse", "seen", "bm25", "--data", "graded", "--train", "none")
    assert done.returncode == 2
    assert "no question of 'none' has a relevant document, so no document counts as seen" in done.stderr


def test_a_result_file_says_how_it_was_made(folder: Path) -> None:
    ok(folder, "compare", "bm25:k1=0.9,b=0.4", "--data", "toy", "--out", "results/toy.json", "--plot", "toy.png")
    result = json.loads((folder / "results" / "toy.json").read_text())
    assert result["command"].startswith("triever compare bm25:k1=0.9,b=0.4 --data toy")
    assert next(iter(result["systems"].values()))["k1"] == 0.9
    assert result["hardware"]["cores"] >= 1
    assert (folder / "toy.png").read_bytes().startswith(b"\x89PNG")
    page = ok(folder, "results", "results")
    assert result["command"] in page
    assert "nDCG@10" in page


def test_options_come_from_a_file_and_words(folder: Path) -> None:
    (folder / "system.toml").write_text('kind = "bm25"\nk1 = 0.5\nlanguage = "none"\n')
    ok(folder, "fit", "system.toml", "--data", "toy", "--out", "from-file", "--set", "k1=0.7")
    options = json.loads(ok(folder, "status", "from-file", "--json"))["options"]
    assert (options["k1"], options["language"]) == (0.7, "none")


def test_expansions_are_taken_from_a_file(folder: Path) -> None:
    (folder / "expansions.jsonl").write_text('{"_id": "tides", "texts": ["ebb and flow at the beach"]}\n')
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "expanded", "--expansions", "expansions.jsonl")
    assert json.loads(ok(folder, "search", "expanded", "beach", "--json"))[0]["id"] == "tides"


SMALL = "backbone=scratch:hidden=32,layers=1,heads=2,vocabulary=300"


def test_expansions_that_nothing_reads_are_kept_with_a_warning(folder: Path) -> None:
    (folder / "unread.jsonl").write_text('{"_id": "tides", "texts": ["ebb and flow at the beach"]}\n')
    words = ("--data", "toy", "--expansions", "unread.jsonl")
    done = triever(folder, "fit", "dense", *words, "--set", SMALL, "--out", "unread")
    assert "triever: dense does not read expansions: they are saved, but not used" in done.stderr
    assert "bm25, generative and gdr read them" in done.stderr
    assert done.returncode == 0
    assert "expansions" not in triever(folder, "fit", "fused", *words, "--out", "read").stderr


def test_a_measure_of_answers_is_refused_before_a_training_where_no_question_has_one(folder: Path) -> None:
    done = triever(folder, "compare", f"dense:{SMALL},training.steps=10000", "--data", "toy", "-m", "Answer@5")
    assert done.returncode == 2
    assert "Answer@k needs answers, but no judged query has any; give queries with answers" in done.stderr
    assert "steps" not in done.stderr


def test_a_system_s_options_may_have_commas_of_their_own(folder: Path) -> None:
    small = f"small=dense:{SMALL},size=16,training.steps=0"
    ok(folder, "compare", small, "fused:systems=bm25,bm25,method=rrf", "--data", "toy", "--out", "commas.json")
    dense, fused = json.loads((folder / "commas.json").read_text())["systems"].values()
    assert (f"backbone={dense['backbone']}", dense["size"]) == (SMALL, 16)
    assert ([system["kind"] for system in fused["systems"]], fused["method"]) == (["bm25", "bm25"], "rrf")


def test_a_model_is_saved_here(folder: Path) -> None:
    (folder / "here").mkdir()
    ok(folder / "here", "fit", "bm25", "--data", str(folder / "toy"), "--out", ".")
    assert json.loads(ok(folder, "status", "here", "--json"))["documents"] == len(DOCUMENTS)
    assert not (folder / "here.work").exists()


LAUNCHED = {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost"}


@pytest.mark.parametrize(
    ("variables", "saved"),
    [
        ({"RANK": "1"}, True),  # as batch systems set it
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, True),
        ({"RANK": "1", **LAUNCHED}, False),  # as torchrun does
        ({"RANK": "0", **LAUNCHED}, True),
    ],
)
def test_of_processes_that_were_launched_together_the_first_saves(
    folder: Path, tmp_path: Path, variables: dict[str, str], saved: bool
) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", str(tmp_path / "m"), **variables)
    assert (tmp_path / "m").exists() == saved


def test_add_delete_and_status(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "changing")
    ok(folder, "add", "changing", "new.jsonl")
    assert json.loads(ok(folder, "search", "changing", "lava", "--json"))[0]["id"] == "volcano"
    refused = triever(folder, "add", "changing", "new.jsonl")
    assert refused.returncode == 2
    assert refused.stderr == "triever: volcano is in changing already; replace what it has with --replace\n"
    ok(folder, "data", "convert", "toy", "toys.d")
    assert "and 9 more of these documents are too; replace" in triever(folder, "add", "changing", "toys.d").stderr
    ok(folder, "add", "changing", "new.jsonl", "--replace")
    ok(folder, "delete", "changing", "volcano", "tea")
    assert json.loads(ok(folder, "search", "changing", "lava", "--json")) == []
    assert f"| documents | {len(DOCUMENTS) - 1} |" in ok(folder, "status", "changing")
    assert json.loads(ok(folder, "status", "changing", "--json"))["deleted"] == 2  # what says the same was not replaced
    assert "deleted 1 document; " in triever(folder, "delete", "changing", "bread").stderr


def test_a_model_is_replaced_when_asked(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "again")
    assert triever(folder, "fit", "bm25", "--data", "toy", "--out", "again", "--set", "k1=0.5").returncode == 2
    assert json.loads(ok(folder, "status", "again", "--json"))["options"]["k1"] == 1.2
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "again", "--set", "k1=0.5", "--replace")
    assert json.loads(ok(folder, "status", "again", "--json"))["options"]["k1"] == 0.5


@pytest.mark.long
def test_a_change_may_wait_for_another(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "busy")
    with ExitStack() as other:
        other.enter_context(artifact.writing(folder / "busy"))
        for words in (["add", "busy", "new.jsonl"], ["delete", "busy", "tea", "--wait", "0.1"]):
            done = triever(folder, *words)
            assert done.returncode == 2
            assert "busy is being written to by another process" in done.stderr
        threading.Timer(3, other.close).start()
        ok(folder, "delete", "busy", "tea", "--wait", "60")
    ok(folder, "add", "busy", "new.jsonl", "--wait", "60")
    assert json.loads(ok(folder, "status", "busy", "--json"))["documents"] == len(DOCUMENTS)


EVIL = "red\x1b[31m\x9b2J\rfake\nline\ttab\u202egnp.exe"


def test_a_terminal_is_shown_what_it_would_obey(folder: Path) -> None:
    record = {"_id": "wolf\x1b[2J", "title": EVIL, "text": f"A wolf. {EVIL}"}
    (folder / "evil.jsonl").write_text(f"{json.dumps(record)}\n" * 2)
    for words in (
        ["data", "info", "evil.jsonl", "--skip-bad"],
        ["data", "info", "evil.jsonl"],
        ["fit", "bm25", "--data", "evil.jsonl", "--out", "evil", "--skip-bad"],
        ["search", "evil", "wolf"],
        ["explain", "evil", "wolf"],
        ["docids", "info", "evil.jsonl", "--scheme", "atomic"],
    ):
        done = triever(folder, *words)
        said = done.stdout + done.stderr
        assert not {*said} & {*"\x1b\x9b\r\t\u202e"}, words
        assert r"wolf\x1b[2J" in said or words[0] == "fit", words
    assert r"red\x1b[31m\x9b2J\rfake\nline\ttab\u202egnp.exe" in ok(folder, "search", "evil", "wolf")
    hit = json.loads(ok(folder, "search", "evil", "wolf", "--json"))[0]
    assert (hit["id"], hit["title"]) == ("wolf\x1b[2J", EVIL)


def test_info_lists_what_was_not_read(folder: Path) -> None:
    shutil.copytree(folder / "toy", folder / "noted")
    for name in ("notes.txt", *(f"z{number:02}.png" for number in range(30))):
        (folder / "noted" / name).write_text("Remember the milk.")
    done = triever(folder, "data", "info", "noted")
    assert "\nnot read: notes.txt, z00.png, " in done.stdout
    assert "31 (.txt 1, .png 30)" in done.stdout
    assert done.stdout.count(".png,") + done.stdout.count(".png and") == 19
    assert "z18.png and 11 more" in done.stdout
    assert done.stderr == ""
    assert len(json.loads(ok(folder, "data", "info", "noted", "--json"))["unread files"]) == 31


def test_bad_records_can_be_left_out_everywhere(folder: Path) -> None:
    shutil.copytree(folder / "toy", folder / "flawed")
    with gzip.open(folder / "flawed" / "corpus.jsonl.gz", "at") as file:
        file.write("not json\n")
    (folder / "half.jsonl").write_text((folder / "new.jsonl").read_text() + "{\n")
    for words in (
        ["data", "info", "flawed"],
        ["fit", "bm25", "--data", "flawed", "--out", "f"],
        ["compare", "bm25", "--data", "flawed"],
    ):
        assert "corpus.jsonl.gz:11: invalid JSON" in triever(folder, *words).stderr
        ok(folder, *words, "--skip-bad")
    assert "half.jsonl:2: invalid JSON" in triever(folder, "add", "f", "half.jsonl").stderr
    assert (
        "left out 1 bad record, such as half.jsonl:2: "
        in triever(folder, "add", "f", "half.jsonl", "--skip-bad").stderr
    )


def test_status_checks_the_files(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "broken")
    victim = next((folder / "broken").glob("terms-*"))
    victim.write_bytes(victim.read_bytes()[:-1])
    done = triever(folder, "status", "broken")
    assert done.returncode == 2
    assert victim.name in done.stderr


def test_the_cache_is_listed_and_removable(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("the user's own")
    ok(folder, "data", "info", "python:json", TRIEVER_CACHE=str(tmp_path))
    assert "python-library-" in ok(folder, "cache", "list", TRIEVER_CACHE=str(tmp_path))
    ok(folder, "cache", "clear", TRIEVER_CACHE=str(tmp_path))
    assert "nothing is cached" in ok(folder, "cache", "list", TRIEVER_CACHE=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_installed_weights_are_listed_with_the_cache_and_kept(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "weights" / "minilm" / "deeper").mkdir(parents=True)
    (tmp_path / "weights" / "other").mkdir()
    for name in ("model.safetensors", "deeper/vocab.txt"):
        (tmp_path / "weights" / "minilm" / name).write_bytes(bytes(1234))
    (tmp_path / "python-x.jsonl").write_text("{}")
    rows = json.loads(ok(folder, "cache", "list", "--json", TRIEVER_CACHE=str(tmp_path)))
    assert [(Path(row["file"]).name, row["bytes"], row["what"]) for row in rows] == [
        ("python-x.jsonl", 2, "made again when it is needed"),
        ("minilm", 2468, "weights: minilm"),
    ]
    ok(folder, "cache", "clear", TRIEVER_CACHE=str(tmp_path))
    done = triever(folder, "cache", "list", TRIEVER_CACHE=str(tmp_path))
    assert "2,468  weights: minilm" in done.stdout
    assert done.stderr == "2,468 bytes in all; triever cache clear keeps weights\n"


def test_a_measure_is_as_deep_as_it_says(folder: Path) -> None:
    words = ("compare", "bm25", "--data", "toy", "-k", "1", "-m", "NumRet", "-m", "R@3", "--json")
    assert json.loads(ok(folder, *words))["scores"]["bm25"]["NumRet"]["mean"] > 1


def test_a_model_of_other_documents_is_measured_with_a_warning(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "older")
    ok(folder, "delete", "older", "tea")
    done = triever(folder, "compare", "older", "--data", "toy")
    assert "older holds other documents than toy" in done.stderr
    assert "not there" in done.stderr
    assert done.returncode == 0


def test_a_run_is_measured_by_qrels_alone(folder: Path) -> None:
    ok(folder, "run", "model", "toy", "--out", "y.run")
    found = json.loads(ok(folder, "evaluate", "y.run", "toy/qrels/test.tsv", "-m", "Success@1", "--json"))
    assert found["scores"]["y"]["Success@1"]["mean"] == 1
    assert found["about"] == {"qrels": "test.tsv"}


def ranking(query: str, count: int) -> str:
    """The lines of a run that finds the first so many documents without a space in their id."""
    ids = [document.id.replace(" ", "") for document in DOCUMENTS[:count]]
    return "".join(f"{query} Q0 {one} {rank} {-rank} x\n" for rank, one in enumerate(ids, start=1))


OTHERS = ranking("q3", 1) + ranking("q4", 1)


@pytest.mark.parametrize("data", ["toy", "toy/qrels/test.tsv"])
def test_a_run_that_is_too_shallow_is_measured_with_a_warning(folder: Path, data: str) -> None:
    (folder / "shallow.run").write_text(ranking("q1", 3) + ranking("q2", 2) + OTHERS)
    words = ("evaluate", "shallow.run", data, "-m", "nDCG@10", "-m", "R@100", "-m", "AP", "--json")
    done = triever(folder, *words)
    assert done.stderr.splitlines() == [
        "triever: shallow.run has at most 3 hits a query, but R@100 reads 100: "
        "lower ranks count as missed; if the system finds more, write them: triever run -k 100"
    ]
    assert json.loads(done.stdout)["about"]["deepest rank"] == 3


def test_a_run_is_deep_enough_when_one_query_is_or_there_is_no_more(folder: Path) -> None:
    (folder / "deep.run").write_text(ranking("q1", 3) + ranking("q2", 1) + OTHERS)
    (folder / "whole.run").write_text(ranking("q1", len(DOCUMENTS)) + ranking("q2", 1) + OTHERS)
    for words in (["deep.run", "toy", "-m", "R@3", "-m", "AP"], ["whole.run", "toy", "-m", "R@100"]):
        done = triever(folder, "evaluate", *words, "--json")
        assert done.stderr == ""
        assert "deepest rank" not in json.loads(done.stdout)["about"]


def test_a_model_may_have_spaces_in_its_name(folder: Path) -> None:
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "my model")
    ok(folder, "run", "my model", "toy", "--out", "z.run")
    assert (folder / "z.run").read_text().splitlines()[0].endswith(" my-model")


def test_a_system_stands_before_a_folder_of_its_name(folder: Path) -> None:
    (folder / "bm25").mkdir()
    ok(folder, "compare", "bm25", "--data", "toy")
    assert "not a Triever artifact" in triever(folder, "compare", "./bm25", "--data", "toy").stderr


def test_what_follows_two_dashes_is_not_an_option(folder: Path) -> None:
    assert ok(folder, "search", "model", "--json", "--", "-q") == "[]\n"


def test_a_terminal_without_unicode_gets_question_marks(folder: Path) -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "triever.cli", "compare", "bm25", "--data", "toy", "-m", "nDCG@10"]
    found = subprocess.run(command, cwd=folder, env=plain, capture_output=True, check=True).stdout
    assert found.isascii()
    assert b"nDCG@10" in found


def test_mistakes_are_found_before_the_work(folder: Path) -> None:
    for words in (["--plot", "x.foo"], ["-m", "NDGC@10"], ["--split", "tset"]):
        done = triever(folder, "compare", "bm25", "--data", "toy", "--out", "never.json", *words)
        assert done.returncode == 2
        assert not (folder / "never.json").exists()


def test_docids_are_described(folder: Path) -> None:
    found = json.loads(ok(folder, "docids", "info", "toy", "--set", "vocabulary=300", "--json"))
    assert found["documents"] == len(DOCUMENTS)
    assert found["tea"].startswith("how to")
    np.save(folder / "vectors.npy", np.random.default_rng(0).normal(size=(len(DOCUMENTS), 8)))
    words = ("docids", "info", "toy", "--scheme", "semantic", "--vectors", "vectors.npy", "--set", "leaf=2")
    assert json.loads(ok(folder, *words, "--json"))["docids"] == len(DOCUMENTS)


def test_docids_are_described_by_the_vectors_of_a_model(folder: Path) -> None:
    settings = [word for setting in (SMALL, "training.steps=0") for word in ("--set", setting)]
    ok(folder, "fit", "dense", "--data", "toy", "--out", "dense", *settings)
    retriever = load(folder / "dense")
    np.save(folder / "same.npy", retriever.engine.index.vectors())
    words = ("docids", "info", "toy", "--scheme", "semantic", "--set", "branch=3", "--set", "leaf=2", "--json")
    by_file, by_model = (ok(folder, *words, "--vectors", name) for name in ("same.npy", "dense"))
    assert by_file == by_model
    ok(folder, "delete", "dense", "tea")
    assert "dense has no document tea; name a model" in triever(folder, *words, "--vectors", "dense").stderr


@pytest.mark.long
def test_docids_that_tell_little_are_warned_of_beside_the_table(tmp_path: Path) -> None:
    lines = (json.dumps({"_id": f"d{number}", "text": f"text {number}"}) for number in range(200))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    np.save(tmp_path / "alike.npy", np.ones((200, 4)))
    words = ("docids", "info", "corpus.jsonl", "--scheme", "codebook", "--vectors", "alike.npy", "--set", "levels=2")
    done = triever(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "code position 2" in done.stdout
    assert "100% of 200 docids, so that they tell little" in done.stderr
    assert "tell little" not in done.stdout
    assert "tell little" in json.loads(ok(tmp_path, *words, "--json"))["warning about codes"]


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros(3), "does not hold a row of numbers for each document"),
        (np.array([["a"], ["b"]]), "does not hold a row of numbers for each document"),
        (np.array([[1.0], [np.nan]]), "holds numbers that are not finite"),
    ],
)
def test_vectors_that_are_no_rows_of_numbers_are_refused(tmp_path: Path, array: np.ndarray, sentence: str) -> None:
    np.save(tmp_path / "odd.npy", array)
    with pytest.raises(DataError, match=sentence):
        describe_docids(dataset(), "codebook", (), tmp_path / "odd.npy")


def test_overlap_of_runs_models_and_systems(folder: Path) -> None:
    ok(folder, "run", "model", "toy", "--out", "first.run")
    (folder / "none.run").write_text(ranking("q1", 3))
    words = (
        "none.run",
        "again=first.run",
        "model",
        "--data",
        "toy",
        "--plot",
        "sets.svg",
        "--out",
        "analysed/toy.json",
    )
    done = triever(folder, "analyse", "overlap", *words, "-m", "RR@10")
    assert done.returncode == 0, done.stderr
    assert "none.run has at most 3 hits a query, but RR@10 reads 10" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:5]] == ["none", "again", "model"]
    assert "none-/again+" in done.stdout
    assert "*Repair a flat tyre*" in done.stdout
    assert (folder / "sets.svg").exists()
    result = json.loads((folder / "analysed" / "toy.json").read_text())
    assert result["command"].startswith("triever analyse overlap none.run again=first.run model --data toy")
    assert result["hardware"]["cores"] >= 1
    found = json.loads(ok(folder, "analyse", "overlap", *words[:5], "-m", "RR@10", "--json"))
    assert found == result["finding"]["values"]
    assert found["scores"]["again"] == found["scores"]["model"]
    page = ok(folder, "results", "analysed")
    assert result["command"] in page
    assert "| none-/again+ |" in page


def test_what_is_found_of_documents_that_training_was_about(folder: Path) -> None:
    words = ("analyse", "seen", "bm25", "model", "--data", "toy", "--plot", "seen.svg", "--out", "seen.json")
    assert "by what training questions were about" in ok(folder, *words)
    assert (folder / "seen.svg").exists()
    found = json.loads((folder / "seen.json").read_text())["finding"]["values"]
    assert sum(found["questions"].values()) == 2 * found["questions"]["all"] > 0
    assert found["train"] == "train"
    assert "tarin" in triever(folder, *words, "--train", "tarin").stderr


def test_a_fit_says_how_held_out_queries_judged_it(folder: Path) -> None:
    write_dataset(folder / "asked", questions())
    settings = [SMALL, "training.steps=4", "training.batch=8", "training.holdout=0.5"]
    words = [word for setting in settings for word in ("--set", setting)]
    said = triever(folder, "fit", "dense", "--data", "asked", "--out", "judged", *words).stderr
    card = load(folder / "judged").card
    values = dict(re.findall(r"^\| (best step|held-out .*?) \| (.*?) \|$", card, re.M))
    assert f"kept step {values['best step']} of 4; held-out queries: RR@10 {values['held-out RR@10']}" in said
    before, after = (float(values[f"held-out RR@10{name}"]) for name in (" before", ""))
    better = values["best step"] == "4" and before < after < 1
    assert ("it was still getting better: try more training.steps" in said) == better
    assert f"RR@10 seen {values['held-out RR@10 seen']}, RR@10 unseen {values['held-out RR@10 unseen']}" in said
    assert "held-out" not in triever(folder, "fit", "bm25", "--data", "asked", "--out", "unjudged").stderr


@pytest.mark.parametrize(
    ("measures", "better"),
    [
        ({"RR@10": 0.3, "RR@10 before": 0.2}, True),
        ({"RR@10": 0.3, "RR@10 before": 0.3}, False),
        ({"RR@10": 1.0, "RR@10 before": 0.2}, False),
        ({"RR@10": 0.0}, False),
        ({"RR@10": 0.3}, True),  # a model of an earlier version
        ({"log-likelihood": -2.0, "log-likelihood before": -3.0}, True),
    ],
    ids=str,
)
def test_more_steps_are_advised_only_where_they_helped(measures: dict[str, float], better: bool) -> None:
    held_out = {f"held-out {name}": value for name, value in measures.items()}
    said = _outcome({"trained steps": 8, "best step": 8, **held_out})
    assert said.endswith("it was still getting better: try more training.steps") == better


def test_status_says_the_same_as_json(folder: Path) -> None:
    write_dataset(folder / "judged data", questions())
    settings = [SMALL, "training.steps=2", "training.batch=8", "training.holdout=0.5", "docids=title"]
    words = [word for setting in settings for word in ("--set", setting)]
    ok(folder, "fit", "generative", "--data", "judged data", "--out", "told", *words)
    for model, named in {
        "told": {"held-out RR@10", "best step", "view labelled"},
        "model": {"with expansions"},
    }.items():
        rows = dict(re.findall(r"^\| (?!what|---)(.+?) \| (.*) \|$", ok(folder, "status", model), re.M))
        facts = json.loads(ok(folder, "status", model, "--json"))
        facts |= facts.pop("options")
        assert {name: str(facts.get(name)) for name in rows} == rows
        assert named <= facts.keys()


def test_the_vocabulary_of_a_contextual_model(folder: Path) -> None:
    settings = ("--set", SMALL, "--set", "training.steps=0")
    ok(folder, "fit", "contextual", "--data", "toy", "--out", "titles", *settings)
    words = ("analyse", "vocabulary", "titles", "--words", "ow,o", "--clusters", "4")
    found = json.loads(ok(folder, *words, "--plot", "vocabulary.png", "--out", "vocabulary.json", "--json"))
    assert found == json.loads((folder / "vocabulary.json").read_text())["finding"]["values"]
    assert found["clusters"]["clusters"] == 4
    assert len(found["words"]) == 2
    assert (folder / "vocabulary.png").read_bytes().startswith(b"\x89PNG")
    refused = triever(folder, "analyse", "vocabulary", "titles", "--words", "volcano")
    assert refused.returncode == 2
    assert refused.stderr.startswith("triever: 'volcano' is not a token of any title; ")


def test_what_theory_says_of_models(folder: Path) -> None:
    untrained = ("--set", SMALL, "--set", "training.steps=0")
    ok(folder, "fit", "dense", "--data", "toy", "--out", "vectors", *untrained)
    rows = ("--set", "docids=semantic", "--set", "decoder.rows=nodes")
    ok(folder, "fit", "generative", "--data", "toy", "--out", "node rows", *rows, *untrained)
    for name, model in (("rank", "vectors"), ("posterior", "node rows")):
        words = ("analyse", name, model, "--data", "toy")
        found = json.loads(ok(folder, *words, "--plot", f"{name}.png", "--out", f"{name}.json", "--json"))
        assert found == json.loads((folder / f"{name}.json").read_text())["finding"]["values"]
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"{found['questions']:,} questions" in ok(folder, *words)


def test_the_memory_of_models(folder: Path) -> None:
    settings = ("--set", SMALL, "--set", "training.steps=0", "--set", "docids.clusters=3")
    ok(folder, "fit", "gdr", "--data", "toy", "--out", "clusters", *settings)
    words = ("analyse", "memory", "words=model", "clusters", "--grow", "1e4,1e9")
    found = json.loads(ok(folder, *words, "--plot", "memory.png", "--out", "analysed/memory.json", "--json"))
    assert [*found["models"]] == ["words", "clusters"]
    assert [grown["documents"] for grown in found["models"]["words"]["grown"]] == [10**4, 10**9]
    assert (folder / "memory.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((folder / "analysed" / "memory.json").read_text())
    assert result["finding"]["values"] == found
    shown = ok(folder, *words)
    assert "clusters with 1,000,000,000 documents like these: " in shown
    assert "1,000,000,000 documents × 8 bytes" in shown
    assert "words on disk: " in shown
    assert result["command"] in ok(folder, "results", "analysed")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux says of a process")
def test_a_model_is_opened_to_see_what_it_takes(folder: Path) -> None:
    said = ok(folder, "analyse", "memory", "model", "--open", "--out", "opened.json")
    assert "the second time, when all libraries are there, it adds" in said
    found = json.loads((folder / "opened.json").read_text())["finding"]["values"]
    moments = found["models"]["model"]["opened"]
    assert moments["opened"]["memory"] > moments["begun"]["memory"] > 0


def test_speed_and_quality_of_systems_are_measured_together(folder: Path) -> None:
    (row,) = json.loads(ok(folder, "bench", "search", "bm25", "--data", "toy", "--json"))
    assert row["system"] == "bm25"


MISTAKES = {
    "no such scheme": (["docids", "info", "toy", "--scheme", "titel"], "did you mean title?"),
    "no vectors": (["docids", "info", "toy", "--scheme", "semantic"], "add --vectors and a .npy file, or a model that"),
    "vectors of a model without": (
        ["docids", "info", "toy", "--scheme", "semantic", "--vectors", "model"],
        "model is a bm25 retriever, which has no vector for each document; name a model that triever fit dense",
    ),
    "vectors that are none": (["docids", "info", "toy", "--vectors", "new.jsonl"], "'volcano' has no vector of"),
    "no such command": (["serch", "model", "x"], "No such command 'serch'"),
    "no such option": (["search", "model", "x", "--limit", "3"], "No such option: --limit"),
    "nothing to search for": (["search", "model"], "there is no query; give one, or - to read one"),
    "k is zero": (["search", "model", "x", "-k", "0"], "'-k' / '--hits'"),
    "no such model": (["search", "nothing", "x"], "nothing does not exist"),
    "a dataset is no model": (["search", "toy", "x"], "toy is not a Triever artifact"),
    "no such data": (["data", "info", "tyo"], "there is no file, folder or dataset called tyo; did you mean toy?"),
    "no such split": (["compare", "bm25", "--data", "toy", "--split", "tset"], "did you mean test?"),
    "no such system": (["fit", "bm52", "--data", "toy", "--out", "m"], "did you mean bm25?"),
    "no such measure": (["compare", "bm25", "--data", "toy", "-m", "NDGC@10"], "NDGC@10"),
    "a measure in another case": (["compare", "bm25", "--data", "toy", "-m", "ndcg@10"], "did you mean nDCG@10?"),
    "no such setting": (["fit", "bm25", "--data", "toy", "--out", "m", "--set", "lang=x"], "did you mean language?"),
    "a word for a number": (
        ["fit", "bm25", "--data", "toy", "--out", "m", "--set", "k1=x"],
        "k1 = 'x' should be a finite number",
    ),
    "no such document": (["delete", "model", "taa"], "did you mean tea?"),
    "saving over other files": (["fit", "bm25", "--data", "toy", "--out", "toy"], "holds other files"),
    "saving over a model": (
        ["fit", "bm25", "--data", "not read yet", "--out", "model"],
        "model already exists; replace it with --replace",
    ),
    "replacing other files": (["fit", "bm25", "--data", "toy", "--out", "toy", "--replace"], "holds other files"),
    "waiting for less than nothing": (["delete", "model", "tea", "--wait", "-1"], "--wait"),
    "converting onto something": (["data", "convert", "toy", "model"], "model already exists"),
    "no such layout": (["data", "convert", "toy", "new", "--to", "bier"], "did you mean beir?"),
    "no such file to add": (["add", "model", "nwe.jsonl"], "did you mean new.jsonl?"),
    "no such package": (["data", "info", "python:nmupy"], "no installed package named 'nmupy'"),
    "no results": (["results", "model"], "model holds no results, only other JSON such as model/manifest.json; write"),
    "saving below a file": (
        ["fit", "bm25", "--data", "not read yet", "--out", "new.jsonl/m"],
        "new.jsonl/m cannot be created, because",
    ),
    "working in the model": (
        ["fit", "bm25", "--data", "not read yet", "--out", "m", "--work", "m"],
        "--work m and --out m are the same folder, or one lies inside the other; name two separate folders",
    ),
    "working inside the model": (
        ["fit", "bm25", "--data", "not read yet", "--out", "m", "--work", "./x/../m/w"],
        "and --out m are the same folder, or one lies inside the other",
    ),
    "saving inside the work": (
        ["fit", "bm25", "--data", "not read yet", "--out", "w/m", "--work", "w"],
        "--work w and --out w/m are the same folder, or one lies inside the other",
    ),
    "a list without quotes": (
        ["fit", "fused", "--data", "toy", "--out", "m", "--set", 'systems=[{kind=bm25}, {kind="dense", size=64}]'],
        """texts inside need quotes: --set 'systems=[{kind="bm25"}, {kind="dense", size=64}]'""",
    ),
    "a table without quotes": (
        ["fit", "reranked", "--data", "toy", "--out", "m", "--set", "first={kind=bm25,k1=0.9}"],
        """texts inside need quotes: --set 'first={kind="bm25",k1=0.9}'""",
    ),
    "a slip behind a comma": (["compare", "bm25:k1=0.9,bb=0.4", "--data", "toy"], "bb is not an option of BM25"),
    "a result onto a folder": (
        ["compare", "bm25", "--data", "toy", "--out", "model"],
        "model is a folder; name a file",
    ),
    "a run onto a folder": (["run", "model", "toy", "--out", "toy"], "toy is a folder; name a file"),
    "a benchmark without steps": (["bench", "train", "--set", "steps=0"], "steps = 0 should be from 1 to"),
    "a benchmark onto a folder": (["bench", "trie", "new.jsonl", "--out", "toy"], "toy is a folder; name a file"),
    "a benchmark of no such split": (["bench", "search", "bm25", "--data", "toy", "--split", "tset"], "mean test?"),
    "two systems of one name": (["compare", "bm25", "bm25", "--data", "toy"], "two systems are called 'bm25'"),
    "an analysis of no such split": (
        ["analyse", "overlap", "bm25", "--data", "toy", "--split", "tset"],
        "did you mean test?",
    ),
    "an analysis by two measures": (
        ["analyse", "seen", "bm25", "--data", "toy", "-m", "RR@10", "-m", "Success@1"],
        "-m is given 2 times, and this analysis has one measure",
    ),
    "an analysis by no such measure": (["analyse", "overlap", "bm25", "--data", "toy", "-m", "Succes@1"], "Succes@1"),
    "a picture of one system": (["analyse", "overlap", "bm25", "--data", "toy", "--plot", "x.png"], "name another"),
    "an analysis of no run": (["analyse", "overlap", "new.jsonl", "--data", "toy"], "new.jsonl is JSON lines"),
    "a run of other documents": (
        ["analyse", "overlap", "other.run", "--data", "toy"],
        "none of the documents that other retrieves is in toy, such as 'x1'; name the data that the run was made for",
    ),
    "a run of other questions": (
        ["analyse", "overlap", "mine=questions.run", "--data", "toy"],
        "mine has no results for any question of the split 'test' of toy; name the data and the split",
    ),
    "a vocabulary of another kind": (
        ["analyse", "vocabulary", "model"],
        "a bm25 retriever has no contextual vocabulary; make one with: triever fit contextual",
    ),
    "normalisation of another kind": (
        ["analyse", "normalisation", "model", "--data", "toy"],
        "a bm25 retriever has no scores that were normalised over drawn documents; make one with: triever fit dense",
    ),
    "ranks of another kind": (
        ["analyse", "rank", "model", "--data", "toy"],
        "a bm25 retriever does not score every document by vectors; make one with: triever fit dense",
    ),
    "a posterior of another kind": (
        ["analyse", "posterior", "model", "--data", "toy"],
        "the nodes of a bm25 retriever have no rows, so nothing estimates what prefixes weigh; make one with",
    ),
    "claims of scores that are none": (
        ["analyse", "calibration", "model", "--data", "toy"],
        "the scores of a bm25 retriever are no probabilities; take a generative or a dense one",
    ),
    "a threshold of nothing": (
        ["analyse", "calibration", "model", "--data", "toy", "--risk", "0.1"],
        "a threshold has to be fitted on some split; name one, such as dev, with --fit-on",
    ),
    "a threshold of its own split": (
        ["analyse", "calibration", "model", "--data", "toy", "--fit-on", "test"],
        "fit it on another split, such as dev",
    ),
    "memory for no number": (
        ["analyse", "memory", "model", "--grow", "1e7,many"],
        "--grow 1e7,many should be whole numbers of documents, up to 1,000,000,000,000; for example: --grow 1e7",
    ),
    "memory for half a document": (["analyse", "memory", "model", "--grow", "0.5"], "should be whole numbers"),
    "memory of no model": (["analyse", "memory", "modl"], "modl does not exist; name a folder"),
    "memory of two of a name": (["analyse", "memory", "model", "./model"], "two systems are called 'model'"),
    "less than nothing": (["quickstart", "--questions", "-1"], "--questions"),
    "not a number": (["fit", "bm25", "--data", "toy", "--out", "m", "--set", "k1=nan"], "should be a finite number"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_2(folder: Path, mistake: str) -> None:
    words, sentence = MISTAKES[mistake]
    done = triever(folder, *words)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("triever: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_place_that_may_not_be_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path)
    with pytest.raises(UsageError, match="is read-only for you"):
        check_parents(tmp_path / "new" / "model")
    (tmp_path / "old").mkdir()
    check_parents(tmp_path / "old" / "model")


def test_memory_that_pytorch_misses_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(why: str) -> None:
        raise RuntimeError(why)

    monkeypatch.setitem(cli.COMMANDS, "results", fails)
    assert cli._run(["results", "CUDA out of memory. Tried to allocate 20.00 GiB."]) == 2
    assert capsys.readouterr().err.startswith("triever: there is not enough memory; ")
    with pytest.raises(RuntimeError, match="a bug"):
        cli._run(["results", "a bug"])


def test_options_are_listed_as_a_table_and_as_json(folder: Path) -> None:
    shown = ok(folder, "options", "generative")
    assert re.search(r"^training\.steps +2000 +optimizer steps", shown, re.MULTILINE)
    assert re.search(r"^with docids\.kind=semantic:\n.*\ndocids\.branch +10 ", shown, re.MULTILINE)
    assert "choices: bm25, dense" in ok(folder, "options", "reranked", "candidates")
    [k1] = json.loads(ok(folder, "options", "bm25", "k1", "--json"))
    assert (k1["name"], k1["default"], k1["takes"]) == ("k1", 1.2, "a finite number")
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "k1", "--set", f"{k1['name']}={k1['default']}")
    assert "did you mean bm25?" in triever(folder, "options", "bm52").stderr
    done = triever(folder, "options", "bm25", "teacher")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.long
def test_a_system_is_suggested_with_commands_that_work(folder: Path) -> None:
    shown = ok(folder, "suggest", "toy")
    assert shown.startswith(f"toy: {len(DOCUMENTS)} documents of ")
    assert "All costs are estimates from: " in shown
    told = json.loads(ok(folder, "suggest", "toy", "--changes", "hourly", "--json"))
    named = {suggestion["system"]: suggestion for suggestion in told["suggestions"]}
    assert sorted(named) == ["bm25", "dense"]
    assert told["situation"]["corpus"]["documents"] == len(DOCUMENTS)
    for line in (*named["bm25"]["fit"], *named["bm25"]["use"]):
        ok(folder, *shlex.split(line)[1:])
    comparison = shlex.split(told["compare"])
    ok(folder, *(word for word in comparison[1:] if word != "models/dense"))
    assert "did you mean daily?" in triever(folder, "suggest", "toy", "--changes", "dayly").stderr


def test_quiet_and_verbose_may_stand_anywhere(folder: Path) -> None:
    assert triever(folder, "fit", "bm25", "--data", "toy", "--out", "q", "-q").stderr == ""
    assert "wrote q" in triever(folder, "-v", "fit", "bm25", "--data", "toy", "--out", "q", "--replace").stderr


@pytest.mark.parametrize("words", [[], ["fit"], ["data"], ["data", "info"]])
def test_help_shows_flags_as_flags_and_says_how_to_hear_more_or_less(folder: Path, words: list[str]) -> None:
    shown = ok(folder, *words, "--help")
    assert "<bool>" not in shown
    assert "--help" in shown
    unwrapped = " ".join(shown.split())
    assert "-v or --verbose prints more messages, -q or --quiet prints nothing but results and errors." in unwrapped


def test_verbose_tells_more_and_quiet_leaves_warnings_out(folder: Path) -> None:
    words = ("compare", "older", "--data", "toy")
    ok(folder, "fit", "bm25", "--data", "toy", "--out", "older", "--replace")
    ok(folder, "delete", "older", "tea", "-q")
    assert "older holds other documents than toy" in triever(folder, *words).stderr
    assert triever(folder, *words, "--quiet").stderr == ""
    write_dataset(folder / "heard", questions())
    settings = [SMALL, "training.steps=2", "training.batch=8", "training.holdout=0.5"]
    fit = ["fit", "dense", "--data", "heard", "--out", "heard model", "--replace"]
    fit += [word for setting in settings for word in ("--set", setting)]
    assert "step 2: {'RR@10'" not in triever(folder, *fit).stderr
    assert "step 2: {'RR@10'" in triever(folder, "--verbose", *fit).stderr


def test_help_and_version(folder: Path) -> None:
    assert "quickstart" in ok(folder, "--help")
    assert "--set" in (said := ok(folder, "fit", "--help"))
    assert all(kind in said for kind in KINDS)
    unwrapped = " ".join(ok(folder, "compare", "--help").replace("│", " ").split())
    assert "A value may have commas" in unwrapped
    starting = ok(folder, "weights", "--help")
    assert all(kind in starting for kind in ("generative", "dense", "multivector", "reranked", "reatt", "answerer"))
    assert ok(folder, "--version").startswith("triever 0.")


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    line = f"{sys.executable} -m triever.cli search model water -k 5 | true"
    done = subprocess.run(line, cwd=folder, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_ctrl_c_leaves_nothing_half_written(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()} | {"long.jsonl"}
    for lines in (60_000, 240_000, 960_000):  # on a busy machine a short file may be finished before it is stopped
        with (folder / "long.jsonl").open("w") as file:
            for number in range(lines):
                file.write(json.dumps({"_id": str(number), "title": "t", "text": f"word{number} " * 30}) + "\n")
        status, said = _interrupted(folder, before)
        if status != 0:
            break
        (folder / "half").unlink() if (folder / "half").is_file() else shutil.rmtree(folder / "half")
    assert status == 130
    assert said == "interrupted; nothing was left half-written\n"
    assert {path.name for path in folder.iterdir()} == before


def _interrupted(folder: Path, before: set[str]) -> tuple[int, str]:
    """How a conversion ends, and what it says, that is interrupted as soon as it has begun to write."""
    command = [sys.executable, "-m", "triever.cli", "data", "convert", "long.jsonl", "half"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    while {path.name for path in folder.iterdir()} == before:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_the_page_of_commands_is_up_to_date(root: Path) -> None:
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == render(), "run: make pages"


def test_quickstart_compares_and_answers(folder: Path) -> None:
    said = ok(folder, "quickstart", "--backbone", "none", "--questions", "2")
    assert "Success@10" in said
    assert said.count("* is a right answer") == 1
    done = triever(folder, "quickstart", "--backbone", "minilmm")
    assert done.returncode == 2
    assert "minilm" in done.stderr
