"""Experiments measure what `triever compare` measures, run nothing twice, and survive what goes wrong."""

from __future__ import annotations

import getpass
import json
import shlex
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests import warm
from tests.retrievers.contract import DOCUMENTS, dataset
from triever import BM25, Answerer, Dataset, Dense, Generative, Query, compare, config, evaluate, load, load_dataset
from triever.data.cutting import Cut
from triever.data.readers import read_run
from triever.data.writers import write_dataset
from triever.engines.lexical import LexicalEngine
from triever.errors import Busy, TrieverError, UsageError
from triever.evaluation.picture import Bars
from triever.files import locked
from triever.lab import experiment, results
from triever.lab.origin import note_of, other_recipe
from triever.lab.pages import pages, write_pages
from triever.lab.recipes import MEASURES, Recipe, read
from triever.lab.tables import RecipeTable
from triever.printable import mean_text
from triever.retrievers.answerer import ReaderTuning
from triever.training.fit_fingerprints import of_folder

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
BM25S = """
title = "Some constants"
about = "a toy"
[data]
name = "toy"
[system]
kind = "bm25"
[axes]
k1 = [0.5, 2.0]
b = [0.0, 1.0]
[settings.smoke]
[settings.mini]
"""
READ = f"""
title = "A retriever and a reader"
measures = ["Success@1", "EM"]
seeds = [0]
[data]
name = "answered"
train = "train"
[[cells]]
label = "bm25"
kind = "bm25"
[[cells]]
label = "reader"
kind = "answerer"
backbone = "{SMALL}"
training = {{ steps = 0 }}
[settings.smoke]
"""
ENCODED = f"""
title = "One encoder for two cells"
seeds = [0, 1]
[data]
name = "toy"
train = "train"
[parts.encoder]
kind = "dense"
backbone = "{SMALL}"
training = {{ steps = 2, batch = 2, holdout = 0.0 }}
[[cells]]
label = "dense"
kind = "@encoder"
[[cells]]
label = "fused"
kind = "fused"
systems = ["bm25", "@encoder"]
[settings.smoke]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dataset `toy`, in which everything is done."""
    write_dataset(tmp_path / "toy", dataset())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recipe(text: str, setting: str = "smoke") -> Recipe:
    Path("toy.toml").write_text(text, encoding="utf-8")
    return read("toy.toml", setting)


def run(text: str, **more: Any) -> tuple[RecipeTable, list[str]]:
    """The table, and what was told on the way."""
    told: list[str] = []
    return experiment.run_recipe(recipe(text), tell=told.append, **more), told


def files() -> dict[str, bytes]:
    """The results, without what the recipe says."""
    return {path.name: path.read_bytes() for path in Path("results").rglob("*-seed*.json")}


def ran(told: list[str]) -> list[str]:
    return [line.partition("] ")[2].partition(":")[0] for line in told if not line.endswith("there already")]


def triever(*words: str) -> CompletedProcess[str]:
    return warm.run(words)


TAUGHT = f"""
title = "What is learned from questions"
measures = ["RR@10", "Success@1"]
seeds = [0, 1]
[data]
name = "asked"
[parts.encoder]
kind = "dense"
backbone = "{SMALL}"
training = {{ steps = 2, batch = 4, holdout = 0.0 }}
[[cells]]
label = "bm25"
kind = "bm25"
[[cells]]
label = "as it comes"
kind = "dense"
backbone = "{SMALL}"
[[cells]]
label = "tuned"
kind = "@encoder"
[[cells]]
label = "fused"
kind = "fused"
systems = ["bm25", "@encoder"]
[settings.mini]
"""


def asked(unseen: int) -> Dataset:
    """A training question about the first document alone; 30 test questions about it, and others about the second."""
    about = {"train": [0], "test": [0] * 30 + [1] * unseen}
    queries: list[Query] = []
    qrels: dict[str, dict[str, dict[str, int]]] = {}
    for split, rows in about.items():
        for number, row in enumerate(rows):
            queries.append(Query(f"{split}{number}", DOCUMENTS[row].text[number % 20 :]))
            qrels.setdefault(split, {})[f"{split}{number}"] = {DOCUMENTS[row].id: 1}
    return Dataset.of("asked", DOCUMENTS, queries, qrels)


# --- numbers --------------------------------------------------------------------------------------------------


def test_a_cell_measures_what_compare_measures() -> None:
    run(BM25S)
    result = json.loads(files()["k1=0.5-b=1.0-seed0.json"])
    measures = [word for measure in MEASURES for word in ("-m", measure)]
    said = triever("compare", "x=bm25:k1=0.5,b=1.0", "--data", "toy", *measures, "--json")
    assert result["reports"]["test"]["scores"]["k1=0.5, b=1.0"] == json.loads(said.stdout)["scores"]["x"]
    assert result["reports"]["test"]["queries"] == json.loads(said.stdout)["queries"]


def test_a_result_says_how_it_was_made() -> None:
    run(BM25S)
    result = json.loads(files()["k1=2.0-b=0.0-seed0.json"])
    fitted = BM25(k1=2.0, b=0.0).fit(load_dataset("toy"))
    assert result["command"] == "triever experiment toy --setting smoke --only 'k1=2.0, b=0.0' --seeds 0"
    assert (result["recipe"], result["setting"], result["seed"]) == ("toy", "smoke", 0)
    assert result["values"] == {"k1": 2.0, "b": 0.0}
    rest = {"language": "english", "method": "lucene", "expand": True, "cut": config.to_dict(Cut())}
    assert result["system"]["options"] == rest | result["values"]
    assert result["data"]["fingerprint"] == fitted.fingerprint[:16]
    assert (result["documents"], result["index_bytes"]) == (len(fitted), fitted.index_bytes)
    assert result["memory"] == fitted.memory
    assert result["seconds"] >= result["fit_seconds"] - 0.1 >= -0.1
    assert result["hardware"]["cores"] >= 1
    assert result["beside"]["load"] >= 0
    assert result["software"]["triever"]


def test_what_learns_from_questions_is_measured_on_seen_and_on_unseen_documents(here: Path) -> None:
    write_dataset(here / "asked", asked(unseen=20))
    experiment.run_recipe(recipe(TAUGHT, "mini"))
    reports = {name: json.loads(content)["reports"]["test"] for name, content in files().items()}
    told = {f"{cell}-seed{seed}.json" for cell in ("tuned", "fused") for seed in (0, 1)}
    assert {name for name, report in reports.items() if "seen" in report} == told
    for name in told:
        seen, total = reports[name]["seen"], reports[name]["scores"][name.partition("-")[0]]["RR@10"]["mean"]
        assert (seen["train"], seen["measure"], seen["questions"]) == ("train", "RR@10", {"seen": 30, "unseen": 20})
        assert 30 * seen["scores"]["seen"]["mean"] + 20 * seen["scores"]["unseen"]["mean"] == pytest.approx(50 * total)
    shown = {line.split(" | ")[0]: line.split(" | ") for line in results.render("results").splitlines()}
    assert shown["| cell"][3:5] == ["RR@10 seen", "RR@10 unseen"]
    for column, group in ((3, "seen"), (4, "unseen")):
        means = [reports[f"tuned-seed{seed}.json"]["seen"]["scores"][group]["mean"] for seed in (0, 1)]
        assert shown["| tuned"][column] == f"{mean_text(fmean(means))} ± {mean_text(stdev(means))}"
        assert shown["| bm25"][column] == "", "it learns from no question"


def test_groups_of_few_questions_are_not_told_apart(here: Path) -> None:
    write_dataset(here / "asked", asked(unseen=19))
    experiment.run_recipe(recipe(TAUGHT, "mini"), seeds=[0])
    assert not any("seen" in json.loads(content)["reports"]["test"] for content in files().values())
    assert "| cell | RR@10 | Success@1 | seeds |" in results.render("results")


def test_several_splits_are_measured_each() -> None:
    found, _ = run(BM25S.replace('name = "toy"', 'name = "toy"\ntest = ["test", "train"]'))
    assert list(found.rows[0].results[0]["reports"]) == ["test", "train"]
    assert found.markdown().count("| cell |") == 2
    assert "Split train:" in found.markdown()


def test_a_sample_and_expansions_are_what_they_are_elsewhere() -> None:
    Path("more.jsonl").write_text('{"_id": "tides", "texts": ["fix a puncture in a bicycle wheel"]}\n')
    data = 'name = "toy"\ndocuments = 6\nexpansions = "more.jsonl"'
    found, _ = run(BM25S.replace('name = "toy"', data))
    expected = experiment.sample(load_dataset("toy"), 6).with_expansions("more.jsonl")
    report = compare({"k1=0.5, b=0.0": BM25(k1=0.5, b=0).fit(expected)}, expected, "test", MEASURES)
    assert found.rows[0].results[0]["reports"]["test"]["scores"] == report.to_dict()["scores"]
    assert found.rows[0].results[0]["data"]["dataset"] == "toy-6"


def placed(folder: str, text: str = BM25S) -> Path:
    """A recipe table.toml in a folder."""
    path = Path(folder, "table.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_command_of_a_recipe_that_is_not_shipped_can_be_run_again(here: Path) -> None:
    path = placed("own folder")
    experiment.run_recipe(read(path, "mini"), only=["k1=0.5, b=0.0"], work=here / "work")
    result = json.loads(Path("results/table/mini/k1=0.5-b=0.0-seed0.json").read_text())
    words = shlex.split(result["command"])
    whole = ["experiment", "own folder/table.toml", "--setting", "mini"]
    assert words == ["triever", *whole, "--only", "k1=0.5, b=0.0", "--seeds", "0"]
    again = triever(*words[1:])
    assert again.returncode == 0, again.stderr
    assert again.stderr.strip() == "[1/1] k1=0.5, b=0.0, seed 0: there already"
    assert f"\n\n`{shlex.join(['triever', *whole])}`\n\n" in results.render("results")


def test_a_page_names_the_folder_that_was_given(here: Path) -> None:
    experiment.run_recipe(read(placed("own"), "mini"), out="others")
    for folder in ("others", here / "others"):
        assert "from a file in `others/` by `triever results others`;" in results.render(folder)
        assert "in `others/` by `triever results others --pages docs`." in pages(folder)["results.md"]
    assert "in `../others/` by `triever results ../others`;" in _rendered_in(here / "own", here / "others")


def _rendered_in(folder: Path, given: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return results.render(given)


def test_two_recipes_of_one_name_do_not_share_their_results(here: Path) -> None:
    first, second = placed("a"), placed("b", BM25S.replace("[0.5, 2.0]", "[0.5, 1.5]"))
    experiment.run_recipe(read(first, "smoke"))
    kept = {path: path.read_bytes() for path in here.glob("results/**/*.json")}
    assert len(kept) == 5
    sentence = "results/table holds the results of a/table.toml; give another --out, or rename one of the recipes"
    for setting in ("smoke", "mini"):  # another setting would stand on the same page
        for path in (second, here / second):
            with pytest.raises(UsageError) as caught:
                experiment.run_recipe(read(path, setting))
            assert str(caught.value) == sentence
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here / "b")
        with pytest.raises(UsageError, match=r"holds the results of \.\./a/table\.toml;"):
            experiment.run_recipe(read("table.toml", "smoke"), out=here / "results")
    assert {path: path.read_bytes() for path in here.glob("results/**/*.json")} == kept
    assert triever("experiment", "b/table.toml").returncode == 2
    assert experiment.run_recipe(read(second, "smoke"), out="others").failed == []


def test_a_recipe_that_was_edited_or_moved_is_still_the_same(here: Path) -> None:
    path = placed("a")
    experiment.run_recipe(read(path, "smoke"))
    note = json.loads(Path("results/table/smoke/recipe.json").read_text())["file"]
    assert note == "../../../a/table.toml"
    path.write_text(BM25S.replace("Some constants", "Others").replace("[0.5, 2.0]", "[0.7]"), encoding="utf-8")
    assert experiment.run_recipe(read(here / path, "smoke")).plan["title"] == "Others"
    path.parent.rename("b")
    told: list[str] = []
    experiment.run_recipe(read("b/table.toml", "smoke"), tell=told.append)
    assert ran(told) == [], "its results count"
    assert json.loads(Path("results/table/smoke/recipe.json").read_text())["file"] == "../../../b/table.toml"
    Path("linked").symlink_to("b")
    experiment.run_recipe(read("linked/table.toml", "smoke"))


def test_a_list_of_cells_without_a_note_is_that_of_this_recipe_unless_a_shipped_one_has_its_name(here: Path) -> None:
    path = placed("a")
    experiment.run_recipe(read(path, "smoke"))
    file = Path("results/table/smoke/recipe.json")
    plan = json.loads(file.read_text())
    del plan["file"], plan["command"]  # as earlier versions wrote it
    file.write_text(json.dumps(plan))
    told: list[str] = []
    experiment.run_recipe(read(path, "smoke"), tell=told.append)
    assert ran(told) == []
    file.write_text("{")  # a damaged one is written anew
    experiment.run_recipe(read(path, "smoke"))
    own = Path("own/recipes/baselines/python.toml")
    own.parent.mkdir(parents=True)
    own.write_text(BM25S, encoding="utf-8")
    shipped = Path("results/baselines/python/smoke/recipe.json")
    results.write(shipped, read("baselines/python", "smoke").plan())
    with pytest.raises(UsageError, match="results/baselines/python holds the results of baselines/python; "):
        experiment.run_recipe(read(own, "smoke"))


def test_a_shipped_recipe_has_no_note_of_its_file() -> None:
    shipped = read("baselines/python", "smoke")
    experiment.run_recipe(shipped, only=[shipped.cells[0].label])
    kept = json.loads(Path("results/baselines/python/smoke/recipe.json").read_text())
    assert kept == json.loads(json.dumps(shipped.plan()))


def test_a_note_through_the_root_or_the_folders_of_users_is_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/ann")
    for recipe_file, folder in (("/x/a/t.toml", "/y/results"), ("/users/bob/t.toml", "/users/ann/results")):
        note = note_of(Path(recipe_file), Path(folder))
        assert note.startswith("sha256:")
        assert other_recipe(note, Path(folder), Path(recipe_file)) == ""
        assert other_recipe(note, Path(folder), Path("/x/b/t.toml")).startswith("a recipe in another folder (if it is")
    assert note_of(Path("/users/ann/t.toml"), Path("/users/ann/results/t")) == "../../t.toml"


def test_no_path_and_no_name_of_a_user_is_in_a_result(here: Path) -> None:
    text = BM25S.replace('name = "toy"', f'name = "{here}/toy"') + '[[cells]]\nlabel = "broken"\nkind = "dense"\n'
    found, _ = run(text + f'backbone = "{here}/nowhere"\n', out=here / "results", work=here / "work")
    assert len(found.failed) == 1
    for result in (*files().values(), Path("results/toy/smoke/recipe.json").read_bytes()):
        assert str(here) not in result.decode()
        assert f"/{getpass.getuser()}" not in result.decode()
    assert json.loads(files()["broken-seed0.json"])["data"]["name"] == "toy"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/home/ann/x", "x"),
        ("~/x/y.json", "y.json"),
        ("C:\\Users\\ann\\x", "x"),
        ("in /tmp/a/b: no", "in b: no"),
        ("google/t5-v1_1-base", "google/t5-v1_1-base"),
        ("queries/s and ../x/y", "queries/s and ../x/y"),
        ("https://example.org/x", "https://example.org/x"),
        ("'/a/b c'", "'b c'"),
    ],
)
def test_only_the_last_name_of_a_path_is_kept(text: str, kept: str) -> None:
    assert results.without_paths([text, {"key": text}]) == [kept, {"key": kept}]


def test_a_system_that_does_not_answer_has_no_measures_of_answers(here: Path) -> None:
    answered = [replace(query, answers=("water",)) for query in dataset().queries("test")]
    qrels = {split: dataset().qrels(split) for split in ("train", "test")}
    write_dataset(here / "answered", Dataset.of("answered", DOCUMENTS, answered, qrels))
    table, _ = run(READ)
    bm25, reader = (row.measured("test", "EM") for row in table.rows)
    assert bm25 is None
    assert reader is not None
    assert [row.measured("test", "Success@1") is None for row in table.rows] == [False, False]


def test_a_result_says_which_model_it_began_with(here: Path) -> None:
    answered = [Query(query.id, query.text, ("harbour",)) for query in dataset().queries("test")]
    qrels = {"test": dataset().qrels("test"), "train": dataset().qrels("test")}
    data = Dataset.of("answered", DOCUMENTS, answered, qrels)
    write_dataset(here / "answered", data)
    text, found = READ.replace('kind = "answerer"', 'kind = "answerer"\nstart = "began"'), []
    for seed in (0, 1):
        Answerer(backbone=SMALL, training=ReaderTuning(steps=0, seed=seed)).fit(data).save(here / "began", replace=True)
        run(text, only=["reader"], again=True)
        (path,) = here.rglob("reader-seed0.json")
        result = json.loads(path.read_text())
        assert result["start"] == of_folder(str(here / "began"))[:16]
        found.append(result["start"])
    assert found[0] != found[1]


# --- again and again ------------------------------------------------------------------------------------------


def test_nothing_is_run_twice_unless_it_is_asked_for() -> None:
    _, first = run(BM25S)
    before = files()
    _, second = run(BM25S)
    assert (len(ran(first)), ran(second)) == (4, [])
    assert files() == before
    _, third = run(BM25S, again=True, only=["k1=2.0, b=0.0"])
    assert ran(third) == ["k1=2.0, b=0.0, seed 0"]
    assert {name for name in before if files()[name] != before[name]} <= {"k1=2.0-b=0.0-seed0.json"}


def test_what_is_done_needs_no_data(here: Path) -> None:
    run(BM25S)
    (here / "toy").rename(here / "moved")
    assert run(BM25S)[0].failed == []


def test_a_changed_recipe_runs_what_has_changed() -> None:
    run(BM25S)
    _, told = run(BM25S.replace("b = [0.0, 1.0]", "b = [0.0, 0.5]"))
    assert ran(told) == ["k1=0.5, b=0.5, seed 0", "k1=2.0, b=0.5, seed 0"]
    table, told = run(BM25S.replace('kind = "bm25"', 'kind = "bm25"\nmethod = "atire"'))
    assert len(ran(told)) == 4
    assert all(row.results[0]["system"]["options"]["method"] == "atire" for row in table.rows)


def test_results_of_another_definition_do_not_count() -> None:
    run(BM25S)
    table = experiment.table_of(recipe(BM25S.replace('kind = "bm25"', 'kind = "bm25"\nmethod = "atire"')))
    assert [line["measured"] for line in table.lines()] == ["not run"] * 4
    assert len(experiment.table_of(recipe(BM25S)).rows[0].results) == 1


KILLED = f"""
title = "Killed"
[data]
name = "toy"
train = "train"
[[cells]]
label = "first"
kind = "bm25"
[[cells]]
label = "second"
kind = "dense"
backbone = "{SMALL}"
training = {{ steps = 20, batch = 2, holdout = 0.0, checkpoint_every = 2 }}
[[cells]]
label = "third"
kind = "bm25"
k1 = 0.5
[settings.smoke]
"""


def test_after_a_kill_only_what_is_missing_is_run(here: Path) -> None:
    (here / "toy.toml").write_text(KILLED)
    process = warm.Begun(["experiment", "toy.toml", "--work", "work"])
    while not any((here / "work").rglob("training.json")):
        assert process.running()
        time.sleep(0.01)
    process.kill()
    assert process.wait() == 128 + signal.SIGKILL
    before = files()
    assert list(before) == ["first-seed0.json"]
    table, told = run(KILLED, work="work")
    assert ran(told) == ["second, seed 0", "third, seed 0"]
    assert table.failed == []
    assert files()["first-seed0.json"] == before["first-seed0.json"]
    second = json.loads(files()["second-seed0.json"])
    assert second["resumed"] is True
    assert second["made_from"]["trained steps"] == 20
    assert not any((here / "work").rglob("training.json"))


def test_a_training_whose_questions_could_not_be_asked_is_not_lost(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(*_rest: object, **_options: object) -> None:
        raise experiment.TooLong("the run took longer than 1 s", "raise timeout")

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "compare", too_long)
        assert len(run(KILLED, work="work")[0].failed) == 3
    (kept,) = (here / "work").rglob("training.json")
    assert json.loads(kept.read_text())["standing"]["finished"] == "steps"
    table, _ = run(KILLED, work="work")
    assert table.failed == []
    assert json.loads(files()["second-seed0.json"])["resumed"] is True
    assert not any((here / "work").rglob("training.json"))


def test_a_training_whose_result_could_not_be_written_is_not_lost(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = results.write

    def full(path: Path, values: object) -> None:
        if path.name == "second-seed0.json":
            raise OSError("no space left on device")
        write(path, values)  # ty: ignore[invalid-argument-type]

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(results, "write", full)
        run(KILLED, work="work")
    assert any((here / "work").rglob("training.json"))
    table, _ = run(KILLED, work="work")
    assert table.failed == []
    assert json.loads(files()["second-seed0.json"])["resumed"] is True
    assert not any((here / "work").rglob("training.json"))


# --- parts ----------------------------------------------------------------------------------------------------

RESTS = f"""
title = "What rests on a part"
[data]
name = "toy"
train = "train"
[parts.encoder]
kind = "dense"
backbone = "{SMALL}"
[[cells]]
label = "gdr"
kind = "gdr"
vectors = "@encoder"
docids = {{ kind = "cluster", clusters = 3 }}
training = {{ steps = 4, batch = 2, holdout = 0.0 }}
[settings.smoke]
"""


def test_what_rests_on_a_part_goes_on_where_it_was(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the part was made by the run that was cut off, and is read from disk by the one that goes on."""

    def cut_off(*_rest: object, **_options: object) -> None:
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "compare", cut_off)
        assert len(run(RESTS, work="work")[0].failed) == 1
    assert any((here / "work").rglob("training.json"))
    table, _ = run(RESTS, work="work")
    assert table.failed == []
    assert json.loads(files()["gdr-seed0.json"])["resumed"] is True


def test_a_part_is_made_once_for_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    learn = Dense.learn
    monkeypatch.setattr(Dense, "learn", lambda self, *rest: (seeds.append(self.training.seed), learn(self, *rest))[1])
    table, _ = run(ENCODED)
    assert table.failed == []
    assert seeds == [0, 1]
    again, told = run(ENCODED, again=True)
    assert (seeds, len(ran(told))) == ([0, 1], 4)
    assert [row.measured("test", "RR@10") for row in again.rows] == [
        row.measured("test", "RR@10") for row in table.rows
    ]
    run(ENCODED.replace('name = "toy"', 'name = "toy"\ntest = ["train"]'))
    assert seeds == [0, 1], "what is asked makes no other part"
    run(ENCODED.replace("steps = 2", "steps = 2, checkpoint_every = 7"))
    assert seeds == [0, 1], "neither does what changes speed or logging alone"
    run(ENCODED.replace("steps = 2", "steps = 3"))
    assert seeds == [0, 1, 0, 1]


def test_a_part_is_made_by_one_experiment_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    learn = Dense.learn

    def learned(self: Dense, *rest: Any) -> Any:
        for path in Path("work", "parts").glob("*.lock"):
            with pytest.raises(Busy), locked(path):
                pass
            held.append(path.name)
        return learn(self, *rest)

    monkeypatch.setattr(Dense, "learn", learned)
    run(ENCODED.replace("seeds = [0, 1]", "seeds = [0]"), work="work")
    assert len(held) == 1
    with locked(Path("work", "parts", held[0])):
        pass  # free again


def test_a_part_is_what_it_is_when_it_is_fitted_alone() -> None:
    table, _ = run(ENCODED)
    part = read("toy.toml", "smoke").cells[0].system.completed(1, "train").parts["encoder"]
    data = load_dataset("toy")
    alone = part.unfitted().fit(data)
    expected = compare({"dense": alone}, data, "test", MEASURES).to_dict()["scores"]
    assert table.rows[0].results[1]["reports"]["test"]["scores"] == expected
    encoder = table.rows[0].results[1]["parts"]["encoder"]
    assert encoder["fit_seconds"] >= 0
    assert encoder["commit"] == results.commit(), "which may be another one than that of what is measured"
    assert table.rows[1].results[1]["system"]["options"]["systems"][1] == "@encoder"


SEARCHED = f"""
title = "One model, searched in several ways"
[data]
name = "toy"
train = "train"
[system]
kind = "generative"
docids = "title"
backbone = "{SMALL}"
training = {{ steps = 2, batch = 4, holdout = 0.0 }}
[parts.titles]
[axes]
query_length = [16]
[[cells]]
label = "beam"
kind = "@titles"
[[cells]]
label = "exact"
kind = "@titles"
search_options = {{ method = "exact" }}
[settings.smoke]
"""


def test_a_part_is_searched_in_several_ways_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[int] = []
    learn = Generative.learn
    monkeypatch.setattr(
        Generative, "learn", lambda self, *rest: (learned.append(self.query_length), learn(self, *rest))[1]
    )
    table, _ = run(SEARCHED)
    assert table.failed == []
    assert learned == [16, 64], "the grid's cell, and the part, which is the system as it is"
    part = read("toy.toml", "smoke").cells[1].system.completed(0, "train").parts["titles"]
    data = load_dataset("toy")
    alone = part.unfitted().fit(data).searched_with({"search_options": {"method": "exact"}})
    expected = compare({"exact": alone}, data, "test", MEASURES).to_dict()["scores"]
    assert table.rows[2].results[0]["reports"]["test"]["scores"] == expected
    assert table.rows[2].results[0]["system"]["options"] == {"search_options": {"method": "exact"}}


# --- what was found -------------------------------------------------------------------------------------------


def test_what_was_found_is_kept_where_a_recipe_says_so() -> None:
    two = BM25S.replace('name = "toy"', 'name = "toy"\ntest = ["test", "train+test"]')
    table, _ = run("runs = true\nhits = 3\n" + two)
    data, fitted = load_dataset("toy"), BM25(k1=0.5, b=1.0).fit(load_dataset("toy"))
    for split in ("test", "train+test"):
        kept = read_run(Path("results/toy/smoke", table.rows[1].results[0]["runs"][split]))
        asked = data.queries(split)
        assert list(kept) == [query.id for query in asked]
        found = fitted.search_many(asked, 100)  # as deep as the measures: Success@100
        assert [[(hit.id, hit.score) for hit in one] for one in kept.values()] == [
            [(hit.id, hit.score) for hit in one] for one in found
        ]
        scores = table.rows[1].results[0]["reports"][split]["scores"]["k1=0.5, b=1.0"]
        assert asdict(evaluate(kept, data.qrels(split), ["RR@10"]).scores["run"]["RR@10"]) == scores["RR@10"]


def test_retrievers_are_kept_where_they_are_wanted() -> None:
    run(ENCODED, models="kept", seeds=[1])
    fused = load(Path("kept/toy/smoke/fused-seed1"))
    data = load_dataset("toy")
    said = json.loads(Path("results/toy/smoke/fused-seed1.json").read_text())["reports"]["test"]["scores"]["fused"]
    assert compare({"fused": fused}, data, "test", ["RR@10"]).scores["fused"]["RR@10"].mean == said["RR@10"]["mean"]
    assert load(Path("kept/toy/smoke/dense-seed1")).kind == "dense"
    assert not Path("kept/toy/smoke/dense-seed0").exists()


def test_no_more_hits_are_looked_for_than_a_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    search = LexicalEngine.search
    monkeypatch.setattr(LexicalEngine, "search", lambda self, *rest: (asked.append(rest[-1]), search(self, *rest))[1])
    run('hits = 4\nmeasures = ["Rprec", "Success@1"]\n' + BM25S)
    assert set(asked) == {4}
    assert not list(Path("results").rglob("*.run.gz"))


# --- what goes wrong ------------------------------------------------------------------------------------------


def test_a_cell_that_fails_does_not_stop_the_others() -> None:
    broken = BM25S + '[[cells]]\nlabel = "broken"\nkind = "dense"\nbackbone = "no/such-weights"\n'
    table, told = run(broken.replace("[settings.smoke]", "").replace("[settings.mini]", "") + "[settings.smoke]\n")
    assert len(told) == 5
    assert len(table.failed) == 1
    assert table.failed[0].startswith("broken, seed 0: the backbone no/such-weights is not on this machine; ")
    assert "failed: broken, seed 0: the backbone" in table.text()
    assert [line["measured"] for line in table.lines()][-1] == "failed"
    mended = broken.replace("no/such-weights", SMALL)
    table, told = run(mended)
    assert (ran(told), table.failed) == (["broken, seed 0"], [])


def test_a_failed_run_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(BM25, "learn", lambda *_: 1 / 0)
        table, _ = run(BM25S)
    assert table.failed[0] == "k1=0.5, b=0.0, seed 0: ZeroDivisionError: division by zero"
    table, told = run(BM25S)
    assert (len(ran(told)), table.failed) == (4, [])


def test_a_part_that_fails_is_tried_once_and_told_to_all(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    tried: list[object] = []

    def fail(*_: object, **__: object) -> None:
        tried.append(1)
        raise UsageError("it rained", "wait")

    monkeypatch.setattr(Dense, "learn", fail)
    table, _ = run(ENCODED.replace("seeds = [0, 1]", "seeds = [0]"))
    assert table.failed == [f"{cell}, seed 0: part 'encoder': it rained; wait" for cell in ("dense", "fused")]
    assert len(tried) == 1


def test_what_takes_too_long_is_stopped() -> None:
    started = time.perf_counter()
    with pytest.raises(TrieverError, match=r"the run took longer than 0\.1 s"), experiment.limit(0.1):
        time.sleep(30)
    assert time.perf_counter() - started < 10
    with experiment.limit(0.1):
        pass
    time.sleep(0.15)  # the alarm is off


def test_a_run_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BM25, "learn", lambda *_: time.sleep(30))
    table, _ = run("timeout = 0.2\n" + BM25S)
    assert len(table.failed) == 4
    assert "the run took longer than 0.2 s" in table.failed[0]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "toy"', 'name = "toy"\ntest = "tset"', "toy has no split 'tset'; did you mean test?"),
        ('name = "toy"', 'name = "toy"\ntrain = "trian"', "toy has no split 'trian'; did you mean train?"),
        ('name = "toy"', 'name = "toy"\ntrain = "test+trian"', "toy has no split 'trian'; did you mean train?"),
        ('name = "toy"', 'name = "tyo"', "there is no file, folder or dataset called tyo"),
        ('name = "toy"', 'name = "toy"\nexpansions = "x.jsonl"', "there is no file of expansions x.jsonl"),
        ("k1 = [0.5", "k1 = [-0.5", "k1 = -0.5 should not be negative"),
    ],
)
def test_mistakes_are_found_before_anything_runs(old: str, new: str, sentence: str) -> None:
    Path("toy.toml").write_text(BM25S.replace(old, new))
    done = triever("experiment", "toy.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not Path("results").exists()


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="an experiment runs in one process"):
        run(BM25S)


def test_a_file_that_is_no_result_is_named() -> None:
    run(BM25S)
    Path("results/toy/smoke/k1=0.5-b=0.0-seed0.json").write_text("{")
    with pytest.raises(
        TrieverError, match=r"k1=0\.5-b=0\.0-seed0\.json is not the result of a run: it is not valid JSON;"
    ):
        run(BM25S)
    Path("results/toy/smoke/k1=0.5-b=0.0-seed0.json").write_text("{}")
    with pytest.raises(TrieverError, match=r"is not the result of a run: it has no 'definition';"):
        run(BM25S)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [("[]", ", though results of runs lie beside it;"), ("{", ": it is not valid JSON;")],
)
def test_a_list_of_cells_that_is_none_is_named(plan: str, sentence: str) -> None:
    experiment.run_recipe(recipe(BM25S, "mini"))
    Path("results/toy/mini/recipe.json").write_text(plan)
    with pytest.raises(TrieverError, match=rf"recipe\.json is not the plan of a recipe{sentence}"):
        results.render("results")


# --- what a person sees ---------------------------------------------------------------------------------------

EXPECTED = """
[expect]
measure = "Success@1"
order = ["k1=0.5, b=0.0 <= k1=2.0, b=0.0", "RR@10: b=0.0 < b=1.0"]
[expect.values]
"k1=0.5, b=0.0" = { value = 1.0, tolerance = 0.3 }
"k1=2.0, b=1.0" = { value = 0.1, tolerance = 0.01 }
"RR@10: k1=2.0, b=1.0" = 1.0
"""


def test_the_table_tells_what_was_expected() -> None:
    table, _ = run(BM25S + EXPECTED)
    lines = {(line["cell"], line["measure"]): line for line in table.lines()}
    mean = BM25(k1=0.5, b=0.0).fit(load_dataset("toy"))
    report = compare({"x": mean}, load_dataset("toy"), "test", ["Success@1"])
    score = report.scores["x"]["Success@1"]
    first = lines["k1=0.5, b=0.0", "Success@1"]
    assert first["measured"] == f"{score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]"
    assert (first["expected"], first["verdict"]) == ("1.000 ± 0.3", "OK")
    assert lines["k1=2.0, b=1.0", "Success@1"]["verdict"] == "DRIFT"
    assert ("k1=2.0, b=1.0", "RR@10") in lines
    assert [one["order"] for one in table.verdicts] == ["k1=0.5, b=0.0 <= k1=2.0, b=0.0", "RR@10: b=0.0 < b=1.0"]
    assert table.drifted
    narrow = table.narrowed(["k1=0.5, b=0.0"])
    assert (len(narrow.lines()), narrow.verdicts, narrow.drifted) == (1, [], False)


def test_the_command_line(here: Path) -> None:
    (here / "toy.toml").write_text(BM25S + EXPECTED)
    listed = json.loads(triever("experiment", "toy.toml", "--list", "--json").stdout)
    assert [(row["cell"], row["done"]) for row in listed][:2] == [("k1=0.5, b=0.0", "no"), ("k1=0.5, b=1.0", "no")]
    assert not (here / "results").exists()
    assert "not run" in triever("experiment", "toy.toml", "--report").stdout
    done = triever("experiment", "toy.toml", "--only", "k1=0.5")
    assert done.returncode == 0, done.stderr
    assert [line[:5] for line in done.stderr.splitlines()] == ["[1/2]", "[2/2]"]
    assert done.stdout.splitlines()[0] == "Some constants (toy, smoke; data toy)"
    assert "k1=2.0" not in done.stdout
    both = json.loads(
        triever("experiment", "toy.toml", "--only", "k1=0.5", "--only", "k1=2.0", "--list", "--json").stdout
    )
    assert both == json.loads(triever("experiment", "toy.toml", "--list", "--json").stdout)
    strict = triever("experiment", "toy.toml", "--strict")
    assert (strict.returncode, strict.stdout.count("DRIFT")) == (1, 1)
    assert triever("experiment", "toy.toml", "--report").stdout == strict.stdout
    found = json.loads(triever("experiment", "toy.toml", "--report", "--json").stdout)
    assert [cell["seeds"] for cell in found["cells"]] == [1, 1, 1, 1]
    assert found["cells"][0]["measures"]["test"].keys() == set(MEASURES)
    for words, sentence in {
        ("--setting", "paper"): "the recipe has no setting 'paper'",
        ("--seeds", "x"): "--seeds 'x' should be whole numbers",
        ("--seeds", "7"): "seed 7 is not a seed of toy in smoke",
        ("--only", "k1=5"): "no cell of toy has 'k1=5' in its label",
    }.items():
        done = triever("experiment", "toy.toml", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr


def test_an_order_is_told_for_each_split_that_it_names() -> None:
    two = BM25S.replace('name = "toy"', 'name = "toy"\ntest = ["test", "train"]')
    said = 'order = ["train: b=1.0 < b=0.0", "RR@10, test, train: k1=0.5 <= k1=2.0"]'
    table, _ = run(f"{two}[expect]\n{said}\n")
    one, both = table.plan["order"]
    assert (one["measure"], one["splits"]) == ("Success@1", ("train",))
    assert (both["measure"], both["splits"]) == ("RR@10", ("test", "train"))
    assert [line["why"].partition(";")[0].split(" of ")[1] for line in table.verdicts] == ["2", "4"]


def test_a_failed_cell_ends_with_1(here: Path) -> None:
    (here / "toy.toml").write_text(BM25S + '[[cells]]\nlabel = "broken"\nkind = "dense"\nbackbone = "no/where"\n')
    done = triever("experiment", "toy.toml")
    assert done.returncode == 1
    assert "failed: broken, seed 0: the backbone no/where is not on this machine" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_page_shows_recipes_beside_comparisons(here: Path) -> None:
    assert triever("compare", "bm25", "--data", "toy", "--out", "results/before/toy.json").returncode == 0
    before = results.render("results")
    experiment.run_recipe(recipe(BM25S + EXPECTED))
    assert results.render("results") == before, "a smoke run says nothing"
    experiment.run_recipe(recipe(BM25S + EXPECTED, "mini"))
    page = results.render("results")
    assert page.startswith(before.removesuffix("\n"))
    section = page.removeprefix(before.removesuffix("\n"))
    mean = json.loads((here / "results/toy/mini/k1=0.5-b=0.0-seed0.json").read_text())
    shown = [f"{score['mean']:.3f}" for score in mean["reports"]["test"]["scores"]["k1=0.5, b=0.0"].values()]
    assert "## toy, mini\n\n`triever experiment toy --setting mini`\n\n**Some constants**: a toy\n" in section
    assert f"| k1=0.5, b=0.0 | {' | '.join(shown)} | 1 | {mean['seconds']} |" in section
    assert "- DRIFT: k1=2.0, b=1.0, Success@1" in section
    assert "`RR@10: b=0.0 < b=1.0`" in section
    assert f"data toy, fingerprint {mean['data']['fingerprint']}; " in section


def test_results_that_the_list_of_cells_lacks_are_on_the_page() -> None:
    """`recipe.json` may be older than a result, or newer than one that was left behind."""
    experiment.run_recipe(recipe(BM25S, "mini"))
    assert "does not list" not in results.render("results")
    folder = Path("results/toy/mini")
    plan = json.loads((folder / "recipe.json").read_text())
    plan["cells"] = [cell for cell in plan["cells"] if cell["cell"] != "k1=2.0, b=0.0"]
    plan["cells"][0]["runs"][0]["definition"] = "another"
    (folder / "recipe.json").write_text(json.dumps(plan))
    listed, _, unlisted = results.render("results").partition("`recipe.json` does not list these results")
    for cell in ("k1=0.5, b=0.0", "k1=2.0, b=0.0"):
        scores = json.loads(files()[f"{cell.replace(', ', '-')}-seed0.json"])["reports"]["test"]["scores"][cell]
        shown = " | ".join(f"{score['mean']:.3f}" for score in scores.values())
        assert f"| {cell} |" not in listed
        assert f"| {cell} | {shown} | 1 |" in unlisted
    assert "| k1=2.0, b=1.0 |" in listed
    assert "| k1=2.0, b=1.0 |" not in unlisted
    assert "| 2 + 2 not listed |" in pages("results")["results.md"]
    (folder / "x-seed0.json").write_text("[]")
    with pytest.raises(TrieverError, match=r"x-seed0\.json is not the result of a run"):
        results.render("results")


def test_a_recipe_without_settings_is_on_the_pages_and_one_in_smoke_is_not(here: Path) -> None:
    run(BM25S)
    assert "toy" not in pages("results")["results.md"]
    bare = BM25S.partition("[settings.")[0]
    run(bare)
    made = pages("results")
    assert "| [toy](results/toy.md) | all |" in made["results.md"]
    assert "\n## toy\n\n`triever experiment toy`\n" in made["results/toy.md"]


def test_other_json_beside_results_is_left_out_and_named(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert triever("compare", "bm25", "--data", "toy", "--out", "results/toy.json").returncode == 0
    before = results.render("results")
    assert caplog.text == ""
    for name, content in {"package.json": '{"name": "x"}', "list.json": "[1]", "half.json": '{"report": '}.items():
        (here / "results" / name).write_text(content)
    (here / "results" / "cake").mkdir()
    (here / "results" / "cake" / "recipe.json").write_text('{"flour": 500}')
    assert results.render("results") == before
    assert "left out 4 JSON files that are no results, but something else: results/cake/recipe.json, " in caplog.text
    whole = json.loads((here / "results" / "toy.json").read_text())
    for change, sentence in (
        ({"seconds": None, "hardware": []}, "toy.json is a damaged result: "),
        ({"report": {}}, "toy.json: this is not a report"),
    ):
        (here / "results" / "toy.json").write_text(json.dumps(whole | change))
        with pytest.raises(TrieverError, match=sentence):
            results.render("results")
    (here / "results" / "toy.json").write_text(json.dumps({"report": whole["report"]}))
    with pytest.raises(TrieverError, match=r"toy\.json is not a result file, because it has no 'command'; remove it"):
        results.render("results")


def test_results_become_an_index_and_a_page_for_each_recipe(here: Path) -> None:
    for name in ("first", "second"):
        assert triever("compare", "bm25", "--data", "toy", "--out", f"results/before/{name}.json").returncode == 0
    experiment.run_recipe(recipe(BM25S + EXPECTED))
    experiment.run_recipe(recipe(BM25S + EXPECTED, "mini"))
    done = triever("results", "results", "--pages", "site")
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote site/results.md and 2 pages in site/results" in done.stderr
    written = {path.relative_to(here / "site").as_posix(): path.read_text() for path in here.glob("site/**/*.md")}
    assert written == pages("results", "site")
    assert "a file in `results/` by `triever results results --pages site`." in written["results.md"]
    assert set(written) == {"results.md", "results/before.md", "results/toy.md"}
    whole = results.render("results")
    for page in ("results/before.md", "results/toy.md"):
        sections = written[page].partition("\n## ")[2]
        assert sections.removesuffix("\n") in whole
        assert f"]({page})" in written["results.md"]
    assert written["results/before.md"].count("\n## ") == 2
    assert "| [toy](results/toy.md) | mini | Some constants | 4 | " in written["results.md"]
    verdicts = [line["verdict"] for line in experiment.table_of(recipe(BM25S + EXPECTED, "mini")).verdicts]
    assert all(f"{verdict} {verdicts.count(verdict)}" in written["results.md"] for verdict in verdicts)
    assert "smoke" not in written["results.md"]


def test_a_page_has_a_picture_with_a_line_over_the_axis_that_a_recipe_plots(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[Path, list[Bars]] = {}
    monkeypatch.setattr("triever.lab.pages.draw_lines", lambda panels, path: drawn.update({path: panels}))
    text = BM25S.replace("[data]", 'plot = "k1"\nmeasures = ["RR@10", "Success@1"]\n[data]')
    table = experiment.run_recipe(recipe(text, "mini"))
    means = {row.cell: row.measured("test", "RR@10") for row in table.rows}
    first, second = table.panels()
    assert (first.title, second.title, first.x, first.labels) == ("RR@10", "Success@1", "k1", ["0.5", "2.0"])
    for b in ("b=0.0", "b=1.0"):
        cells = [measured for k1 in ("k1=0.5", "k1=2.0") if (measured := means[f"{k1}, {b}"])]
        assert first.series[b] == [measured.mean for measured in cells]
        assert first.over_questions[b] == [(measured.lows[0], measured.highs[0]) for measured in cells]
        assert first.over_seeds[b] == [None, None], "there is one seed"
    write_pages("results", "site")
    assert "![toy, mini](toy-mini.svg)" in (here / "site/results/toy.md").read_text()
    assert drawn == {Path("site/results/toy-mini.svg"): [first, second]}
    assert "toy-mini.svg" not in results.render("results"), "one page alone has no pictures beside it"
    missing = here / "results/toy/mini/k1=2.0-b=1.0-seed0.json"
    missing.unlink()
    assert experiment.table_of(recipe(text, "mini")).panels()[0].series["b=1.0"][1] is None


def test_probabilities_are_measured_for_those_systems_that_have_them() -> None:
    measured = 'measures = ["Success@1", "Brier"]\nseeds = [0]\n'
    text = ENCODED.replace("seeds = [0, 1]\n", measured) + '[[cells]]\nlabel = "bm25"\nkind = "bm25"\n'
    table, _ = run(text)
    assert table.failed == []
    dense, fused, bm25 = (row.measured("test", "Brier") for row in table.rows)
    assert dense is not None
    assert 0 < dense.mean < 1
    assert fused is bm25 is None
    assert all(row.measured("test", "Success@1") for row in table.rows)


def test_cells_of_other_documents_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    run(BM25S)
    path = Path("results/toy/smoke/k1=2.0-b=1.0-seed0.json")
    result = json.loads(path.read_text())
    result["data"]["fingerprint"] = "0" * 16
    path.write_text(json.dumps(result))
    experiment.table_of(recipe(BM25S))
    assert "k1=2.0, b=1.0 was not measured on the same version of toy as other cells" in caplog.text
