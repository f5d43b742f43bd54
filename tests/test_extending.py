"""The package of docs/extending.md: written to a folder as the page shows it, found by its entry points, and used."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triever
from tests.marks import quick
from tests.packages import on_path, write_package
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, Contract, dataset
from triever import Document, artifact, cli, config, plugins
from triever.data.sampling import sample
from triever.data.writers import write_dataset
from triever.docids.schemes import Scheme, scheme_class
from triever.evaluation.measures import per_query
from triever.lab.systems import new_system
from triever.memory_parts import computed
from triever.retriever import system

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST = 80
SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"

FILES = dict(TITLED.findall(PAGE.read_text(encoding="utf-8")))
MODULES = {path: source for path, source in FILES.items() if path.endswith(".py")}
PROJECT = tomllib.loads(FILES["pyproject.toml"])["project"]


@pytest.fixture(autouse=True, scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    write_package(folder, PROJECT["name"], {"shelf/__init__.py": "", **MODULES}, PROJECT["entry-points"])
    with on_path(folder, ["shelf"]):
        yield folder


def retriever(**options: Any) -> triever.Retriever:
    return config.build(system("ngrams"), options)


def scheme(**options: Any) -> Scheme:
    return config.build(scheme_class("folders"), options)


def test_each_example_is_short() -> None:
    assert sorted(MODULES) == ["shelf/folders.py", "shelf/margin.py", "shelf/ngrams.py"]
    for path, source in MODULES.items():
        assert len(source.splitlines()) < LONGEST, path


def test_each_group_has_one_example() -> None:
    assert {group: len(names) for group, names in PROJECT["entry-points"].items()} == {
        plugins.RETRIEVERS: 1,
        plugins.SCHEMES: 1,
        plugins.MEASURES: 1,
    }


def shortened(line: str) -> str:
    """The same command for a few documents and a few steps."""
    return line.replace(" python ", " few ").replace("training.steps=20", "training.steps=2")


@pytest.mark.parametrize("short", quick(of=[True, False]))
def test_the_commands_of_the_page_work(
    short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_dataset("few", sample(triever.load_dataset("python"), 300, seed=1, first=["dev", "test"]))  # with list.sort
    blocks = [block.replace("\\\n", " ") for block in SHELL.findall(PAGE.read_text(encoding="utf-8"))]
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("pip ")]
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(shortened(line) if short else line)
        assert words[0] == "triever"
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert not ended.value.code, f"{line}\n{said.out}\n{said.err}"
    assert triever.load("models/written").engine.docids.scheme.separator == "."
    assert "list.sort" not in triever.load("models/ngrams").documents


def test_help_names_the_retriever(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fit", "--help"])
    assert "ngrams" in capsys.readouterr().out


# --- the retriever --------------------------------------------------------------------------------------------


class TestNgrams(Contract):
    def make(self) -> triever.Retriever:
        return retriever()


def test_scores_are_those_of_sets() -> None:
    """Dice's coefficient, by the letters of Python's own sets."""
    fitted = retriever(length=2).fit(dataset())
    asked = {"te", "ea", "a ", " l"}
    for hit in fitted.search("Tea l", 10):
        text = fitted.documents.document(hit.id).full_text.casefold()
        there = {text[at : at + 2] for at in range(len(text) - 1)}
        assert hit.score == pytest.approx(2 * len(asked & there) / (len(asked) + len(there)), abs=0.01)


def test_parts_add_up_to_the_score() -> None:
    explanation = retriever().fit(dataset()).explain("boiling water for tea leaves", 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score)
        assert all(weight > 0 for _, weight in parts)


def test_its_memory_is_counted_and_computed_alike(tmp_path: Path) -> None:
    fitted = retriever().fit(dataset())
    fitted.save(tmp_path / "model")
    for held in (fitted, triever.load(tmp_path / "model")):
        assert computed(held.memory_for()["postings"]) == held.memory["postings"] == held.index_bytes
    assert computed(fitted.memory_for(1000)["postings"]) == 1000 * fitted.memory["postings"] // len(DOCUMENTS)


def test_a_damaged_file_is_a_sentence(tmp_path: Path) -> None:
    fitted = retriever().fit(dataset())
    with artifact.writing(tmp_path / "model") as writer:
        fitted._save(fitted._checked(), writer)
        writer.array("marks", np.zeros((3, 3), bool))
        manifest = artifact.read(tmp_path / "model").manifest
        writer.commit(manifest.kind, manifest.options, manifest.state, manifest.written_by)
    with pytest.raises(triever.ArtifactError, match="is not a valid saved ngrams: marks has the type bool"):
        triever.load(tmp_path / "model")


def test_wrong_options_are_sentences() -> None:
    with pytest.raises(triever.UsageError, match="length = 0 should be above zero"):
        retriever(length="0")
    with pytest.raises(triever.UsageError, match="lenght is not an option of Ngrams; did you mean length"):
        retriever(lenght=3)


def test_it_is_a_part_of_others_and_of_toml_files(tmp_path: Path) -> None:
    fused = config.build(triever.Fused, {"systems": ["bm25", {"kind": "ngrams", "length": 4}]}).fit(dataset())
    assert fused.search(QUERIES[0])[0].id == "tea"
    fused.save(tmp_path / "fused")
    assert triever.load(tmp_path / "fused").search(QUERIES[0]) == fused.search(QUERIES[0])
    (tmp_path / "four.toml").write_text('kind = "ngrams"\nlength = 4\n')
    assert repr(new_system(str(tmp_path / "four.toml"), [])) == "Ngrams(length=4)"


RECIPE = """
title = "Pieces"
measures = ["Margin@2", "Success@1"]
[data]
name = "python"
test = ["dev"]
documents = 100
[system]
kind = "ngrams"
[settings.smoke]
[axes]
length = [3, 4]
"""


def test_a_recipe_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pieces.toml").write_text(RECIPE)
    with pytest.raises(SystemExit) as ended:
        cli.main(["experiment", "pieces.toml", "--json"])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    assert "Margin@2" in said.out
    assert len(list(Path("results").rglob("length=*.json"))) == 2


# --- the scheme -----------------------------------------------------------------------------------------------

PATHS = ["guide/tea/green", "guide/tea/black", "guide/coffee", "guide/tea/white/first", "faq", "news/tea/a", "faq2"]
FOLDERS = [Document(path, f"about {path}") for path in PATHS]


def test_documents_of_one_folder_share_a_prefix() -> None:
    made = scheme()
    docids = dict(zip(PATHS, made.fit(FOLDERS), strict=True))
    assert [made.readable(docids[path]) for path in PATHS[:4]] == [
        "guide/tea/0",
        "guide/tea/1",
        "guide/0",
        "guide/tea/white/0",
    ]
    assert docids["guide/tea/green"][:2] == docids["guide/tea/white/first"][:2]
    assert [made.parse(made.readable(docid)) for docid in docids.values()] == [*docids.values()]
    for one in docids.values():
        assert all(symbol < made.width for symbol in one)
        assert not any(other[: len(one)] == one for other in docids.values() if other != one)


def test_new_documents_need_no_new_symbols() -> None:
    made = scheme(most=2)
    made.fit(FOLDERS)
    width = made.width
    placed = [made.place(Document(path, "")) for path in ("guide/new", "guide/newer", "attic/box/old")]
    assert [made.readable(docid) for docid in placed] == ["guide/1", "guide/0", "//0"]
    assert made.width == width
    assert [made.parse(made.readable(docid)) for docid in placed] == placed
    with pytest.raises(triever.UsageError, match="is no docid"):
        made.parse("attic/0")


def test_generative_retrieval_writes_its_docids(tmp_path: Path) -> None:
    data = triever.Dataset.of("paths", FOLDERS, QUERIES, {"train": {"q1": {"guide/tea/green": 1}}})
    options = {"docids": "folders", "backbone": SMALL, "training": {"steps": 3, "batch": 4}}
    written = config.build(triever.Generative, options).fit(data)
    assert {hit.docid for hit in written.search("tea", 7)} >= {"guide/tea/0", "0"}
    written.add([Document("guide/tea/red", "more")])
    written.delete(["faq"])
    written.save(tmp_path / "model")
    again = triever.load(tmp_path / "model")
    assert again.search("tea", 7) == written.search("tea", 7)
    assert "guide/tea/2" in {hit.docid for hit in again.search("tea", 7)}
    symbols = [name for parts in again.explain("tea", 7).parts for name, _ in parts]
    assert {"1: guide", "2: tea", "3: 0"} <= set(symbols)


def test_without_the_package_an_artifact_names_the_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"docids": "folders", "backbone": SMALL, "training": {"steps": 0}}
    config.build(triever.Generative, options).fit(dataset()).save(tmp_path / "model")
    monkeypatch.setattr(plugins, "installed", lambda _group: {})
    with pytest.raises(triever.ArtifactError, match=r"holds a 'folders', which .* install the package that brings it"):
        triever.load(tmp_path / "model")


# --- the measure ----------------------------------------------------------------------------------------------


def test_the_measure_is_what_it_says() -> None:
    run = {"q1": {"tea": 4.0, "coffee": 1.0}, "q2": {"tea": 4.0, "bike": 1.0}, "q4": {"bread": 2.0}}
    values = per_query(run, QRELS, ["Margin@2"])["Margin@2"]
    assert values == {"q1": 0.75, "q2": 0.0, "q3": 0.0, "q4": 1.0}
    with pytest.raises(triever.UsageError, match="needs scores above zero"):
        per_query({"q1": {"tea": -1.0}}, QRELS, ["Margin@2"])


def test_a_comparison_reports_it() -> None:
    systems = {"ngrams": retriever().fit(dataset()), "bm25": triever.BM25().fit(dataset())}
    report = triever.compare(systems, dataset(), "test", ["Margin@2", "Success@1"])
    assert report.scores["ngrams"]["Success@1"].mean == 1.0
    assert 0 < report.scores["ngrams"]["Margin@2"].mean < 1
    assert json.loads(json.dumps(report.to_dict()))
