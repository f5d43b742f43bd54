"""The examples do what the pages say of them, each as a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import triever

RAG = Path("examples", "rag.py")
PAGE = Path("docs", "rag.md")


@pytest.fixture(scope="module")
def rag(root: Path) -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("rag", root / RAG)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rag"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BM25 on the default corpus, saved."""
    folder = tmp_path_factory.mktemp("rag") / "python"
    triever.BM25().fit(triever.load_dataset("python")).save(folder)
    return folder


def ran(root: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RAG), *map(str, words)]
    return subprocess.run(command, cwd=root, env={**os.environ}, capture_output=True, text=True, check=False)


def answers(printed: str) -> dict[str, list[str]]:
    """Question -> the lines below it."""
    parts = re.split(r"^== ", printed, flags=re.MULTILINE)[1:]
    return {lines[0]: lines[1:] for lines in (part.rstrip().splitlines() for part in parts)}


def test_answers_cite_the_right_entry_and_say_where_there_is_none(root: Path) -> None:
    done = ran(root, "join paths of folders", "merge several sorted lists into one", "quokka wombat")
    assert done.returncode == 0, done.stderr
    paths, lists, nothing = answers(done.stdout).values()
    assert paths[0].startswith("join(a, *p) Join two or more pathname components")
    assert paths[0].endswith(" [1]")
    assert "[1] os.path.join" in paths
    assert lists[0].endswith(" [1]")
    assert "[1] heapq.merge" in lists
    assert nothing == ["No document says anything about it."]


@pytest.mark.long
def test_a_saved_retriever_and_a_filter(root: Path, model: Path) -> None:
    question = "a queue in which the lowest entries come first"
    done = ran(root, question, "--model", model, "--where", "kind=class", "-k", "1")
    assert answers(done.stdout)[question][2:] == ["[1] queue.PriorityQueue"]
    refused = ran(root, question, "--model", model, "--where", "knd=class")
    assert (refused.returncode, refused.stderr) == (
        1,
        "rag.py: no document has the metadata key 'knd'; did you mean kind?\n",
    )


def test_a_place_for_a_model_says_so_while_it_is_empty(root: Path, model: Path) -> None:
    refused = ran(root, "join paths", "--model", model, "--llm", "own")
    assert refused.returncode == 1
    assert refused.stderr.endswith("write own_model in examples/rag.py\n")


def test_what_the_page_shows_is_what_is_printed(root: Path, model: Path) -> None:
    """Titles and their order; texts may differ from one Python to the next."""
    page = (root / PAGE).read_text(encoding="utf-8")
    shown = re.findall(r"^\$ python examples/rag\.py (.*)\n((?:(?!```).*\n)*)", page, re.MULTILINE)
    plain = [(shlex.split(words), text) for words, text in shown if "--model" not in words and "--llm" not in words]
    assert len(plain) >= 2
    for words, text in plain:
        done = ran(root, *words, "--model", model)
        assert _sources(done.stdout) == _sources(text)


def _sources(printed: str) -> list[str]:
    return re.findall(r"^(\[1\] .*)$", printed, re.MULTILINE)


def test_passages_keep_to_the_budget(rag: ModuleType) -> None:
    documents = [triever.Document(str(number), f"red fox {number}. " * 30, f"Fox {number}") for number in range(5)]
    hits = triever.BM25().fit(triever.Dataset.of("foxes", documents)).search("red fox", k=5)
    for budget in (0, 10, 100, 1000):
        sources = rag.prompt_of("red fox", hits, budget).sources
        assert sum(len(source.passage.split()) for source in sources) <= budget
    whole = rag.prompt_of("red fox", hits, 1000)
    assert [source.title for source in whole.sources] == [hit.title for hit in hits]
    assert all(f"[{number}] {source.title}: " in str(whole) for number, source in enumerate(whole.sources, 1))


def test_citations_are_of_sources_that_exist(rag: ModuleType) -> None:
    sources = (rag.Source("Tea", "tea is hot", "tea"), rag.Source("Ice", "ice is cold", "ice"))
    prompt = rag.Prompt("what is cold", sources)
    assert rag.cited("Ice is cold [2].", prompt) == "Ice is cold [2]."
    assert rag.cited("Ice [2] is cold [7].", prompt) == "Ice [2] is cold."
    assert rag.cited("Ice is cold [7]", prompt) == "Ice is cold [2]"
    assert rag.answer(prompt) == "tea [1]\nice [2]"
