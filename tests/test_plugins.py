"""Names that other packages bring: who wins, what is refused, and when anything is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import triever
from tests.packages import on_path, write_package
from triever import artifact, plugins
from triever.config import build
from triever.docids.schemes import scheme_class
from triever.evaluation.measures import check, lower_is_better
from triever.retriever import system

RETRIEVER = """
from dataclasses import dataclass
from typing import ClassVar
from triever import BM25

@dataclass(eq=False)
class Plain(BM25):
    kind: ClassVar[str] = "plain"
    language: str = "none"

class Unnamed(BM25):
    pass

class Mine(BM25):
    kind: ClassVar[str] = "bm25"
"""
SCHEME = """
from typing import ClassVar
from triever import Naive

class Letters(Naive):
    kind: ClassVar[str] = "letters"
"""
MEASURE = """
from triever.evaluation.measures import Measure

HITS = Measure(lambda task, query: float(len(task.hits.get(query, ()))), None, lower_is_better=True)
NAN = Measure(lambda task, query: float("nan"), 1)

def few(cutoff):
    return Measure(lambda task, query: float(len(task.hits.get(query, ())) <= cutoff), cutoff)

def wrong(cutoff):
    return cutoff
"""
MODULES = {
    "several/__init__.py": "",
    "several/retriever.py": RETRIEVER,
    "several/scheme.py": SCHEME,
    "several/measure.py": MEASURE,
    "several/broken.py": "import nothing_of_this_name",
}
ENTRY_POINTS = {
    plugins.RETRIEVERS: {
        "plain": "several.retriever:Plain",
        "bm25": "several.retriever:Mine",
        "broken": "several.broken:Broken",
        "missing": "several.retriever:Missing",
        "unnamed": "several.retriever:Unnamed",
        "number": "several:__name__",
        "both": "several.retriever:Plain",
    },
    plugins.SCHEMES: {"letters": "several.scheme:Letters", "naive": "several.scheme:Letters"},
    plugins.MEASURES: {
        "Hits": "several.measure:HITS",
        "Few": "several.measure:few",
        "Nan": "several.measure:NAN",
        "Wrong": "several.measure:wrong",
        "Name": "several:__name__",
        "P": "several.measure:HITS",
        "Brier": "several.measure:few",
    },
}
RUN, QRELS = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 1}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site")
    write_package(path, "several-things", MODULES, ENTRY_POINTS)
    write_package(path, "other-things", {}, {plugins.RETRIEVERS: {"both": "several.retriever:Plain"}})
    return path


@pytest.fixture
def installed(folder: Path) -> Iterator[Path]:
    with on_path(folder, ["several"]):
        yield folder


def data() -> triever.Dataset:
    return triever.Dataset.of("two", [triever.Document("a", "tea leaves"), triever.Document("b", "flat tyre")], [], {})


def test_without_packages_there_are_only_our_own() -> None:
    assert not any(plugins.names(group) for group in (plugins.RETRIEVERS, plugins.SCHEMES, plugins.MEASURES))


@pytest.mark.usefixtures("installed")
def test_a_name_of_a_package_is_as_good_as_ours() -> None:
    assert system("plain")().fit(data()).search("leaves")[0].id == "a"
    assert scheme_class("letters").kind == "letters"
    means = {"Hits": 2.0, "Few@1": 0.0, "Few@2": 1.0, "P@1": 1.0}
    [scores] = triever.evaluate(RUN, QRELS, [*means]).scores.values()
    assert {measure: score.mean for measure, score in scores.items()} == means
    assert lower_is_better("Hits")
    assert not lower_is_better("Few@1")


@pytest.mark.usefixtures("installed")
def test_it_may_be_a_part_of_another_system() -> None:
    fused = build(triever.Fused, {"systems": ["bm25", "plain"]}).fit(data())
    assert [part.kind for part in fused.members] == ["bm25", "plain"]


@pytest.mark.usefixtures("installed")
def test_our_own_names_win() -> None:
    assert system("bm25") is triever.BM25
    assert scheme_class("naive") is triever.Naive
    assert lower_is_better("Brier")
    assert not lower_is_better("P@5")
    assert "bm25" not in plugins.names(plugins.RETRIEVERS, {"bm25"})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plian", "there is no system named 'plian'; did you mean plain?"),
        ("both", "'both' .* is provided by several packages: other-things, several-things; uninstall all but one"),
        (
            "broken",
            "several-things, which provides 'broken', cannot be imported: ModuleNotFoundError: .*nothing_of_this",
        ),
        ("missing", "several-things, which provides 'missing', cannot be imported: AttributeError"),
        ("unnamed", "several-things provides 'unnamed', which is not a subclass of Retriever with kind = 'unnamed'"),
        ("number", "several-things provides 'number', which is not a subclass of Retriever"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_when_it_is_asked_for(name: str, message: str) -> None:
    with pytest.raises(triever.UsageError, match=message):
        system(name)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Hits@3", "there is no measure 'Hits@3'; it takes no cutoff: Hits"),
        ("Few", "there is no measure 'Few'; it takes a cutoff: Few@10"),
        ("Wrong@2", "several-things provides 'Wrong', which is not a Measure, or a function"),
        ("Name", "several-things provides 'Name', which is not a Measure"),
        ("Hitz", "did you mean Hits"),
    ],
)
def test_a_measure_that_cannot_be_used_is_a_sentence(name: str, message: str) -> None:
    with pytest.raises(triever.UsageError, match=message):
        check([name])


@pytest.mark.usefixtures("installed")
def test_a_measure_that_gives_no_number_is_a_sentence() -> None:
    with pytest.raises(triever.UsageError, match="Nan is nan for query 'q'; leave that measure out"):
        triever.evaluate(RUN, QRELS, ["Nan"])


def test_an_artifact_of_a_package_that_is_not_there_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    with on_path(folder, ["several"]):
        plain = system("plain")().fit(data())
        plain.save(tmp_path / "alone")
        build(triever.Fused, {"systems": ["bm25", "plain"]}).fit(data()).save(tmp_path / "inside")
        assert triever.load(tmp_path / "alone").search("leaves") == plain.search("leaves")
        assert triever.load(tmp_path / "inside").search("leaves")[0].id == "a"
    for name in ("alone", "inside"):
        message = f"{name} holds a 'plain', which neither .* knows; install the package that brings it"
        with pytest.raises(triever.ArtifactError, match=message):
            triever.load(tmp_path / name)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", ["several.retriever:Plain", "several.retriever", "os", "several-things", ""])
def test_a_manifest_cannot_name_a_module(kind: str, tmp_path: Path) -> None:
    triever.BM25().fit(data()).save(tmp_path / "model")
    manifest = tmp_path / "model" / artifact.MANIFEST
    raw = json.loads(manifest.read_text()) | {"kind": kind}
    manifest.write_text(json.dumps(raw | {"digest": artifact.digest_of(raw)}))
    with pytest.raises(triever.ArtifactError, match="neither this Triever nor an installed package knows"):
        triever.load(tmp_path / "model")
    assert not any(module.startswith("several.") for module in sys.modules)


def run(folder: Path, code: str) -> str:
    source = Path(triever.__file__).parent.parent
    set_path = f"import sys; sys.path[:0] = [{str(source)!r}, {str(folder)!r}]\n"
    done = subprocess.run([sys.executable, "-c", set_path + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_is_looked_for_before_it_is_asked_for(folder: Path) -> None:
    count = "from triever import plugins\nprint(plugins.installed.cache_info().misses, 'several' in sys.modules)"
    asked = "from triever.retriever import system\nsystem('bm25')\n"
    assert run(folder, f"{asked}{count}") == "0 False"
    helped = "from triever.cli import app\napp()(['--help'], standalone_mode=False)\n"
    assert run(folder, f"{helped}{count}").endswith("0 False")


def test_help_names_what_packages_bring_and_imports_none(folder: Path) -> None:
    brought = {"fit": ["plain", "broken"], "compare": ["plain", "Hits"], "evaluate": ["Hits", "Few"]}
    brought["docids info"] = ["letters"]
    code = "from triever.cli import app\n"
    for words in brought:
        code += f"app()({[*words.split(), '--help']}, standalone_mode=False)\nprint('several' in sys.modules)\n"
    for said, names in zip(run(folder, code).split("False"), [*brought.values(), []], strict=True):
        assert all(name in said for name in names), said
