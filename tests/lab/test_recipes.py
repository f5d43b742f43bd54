"""Recipes are laid out as one would by hand, and what is wrong with one is said before anything runs."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.marks import quick
from tests.toml_text import to_toml
from triever import UsageError, config
from triever.lab import experiment
from triever.lab.cells import System
from triever.lab.expect import Pair
from triever.lab.recipes import SETTINGS, Recipe, Run, find, read, recipe_name
from triever.retriever import KINDS

ROOT = Path(__file__).parents[2]
AWAITED = set() if "adapter" in config.options(triever.Dense) else {"study/adapters"}
"""Recipes with an option that no system has yet."""
SHIPPED = [path for path in sorted((ROOT / "recipes").rglob("*.toml")) if recipe_name(path) not in AWAITED]
HEAD = """
title = "toy"
data = "python"
"""
GRID = """
[system]
kind = "bm25"
[axes]
language = ["english", "none"]
k1 = [0.5, 1, 2.0]
[settings.smoke]
"""


def recipe(folder: Path, text: str, setting: str = "smoke") -> Recipe:
    path = folder / "toy.toml"
    path.write_text(text, encoding="utf-8")
    return read(path, setting)


def labels(found: Recipe) -> list[str]:
    return [cell.label for cell in found.cells]


# --- axes and cells -------------------------------------------------------------------------------------------

AXES = st.fixed_dictionaries(
    {
        "k1": st.lists(st.floats(0, 3), min_size=1, max_size=4, unique=True),
        "b": st.lists(st.floats(0, 1), min_size=1, max_size=3, unique=True),
        "method": st.lists(st.sampled_from(["lucene", "robertson", "atire"]), min_size=1, unique=True),
        "expand": st.lists(st.booleans(), min_size=1, unique=True),
    }
)


@given(AXES)
def test_axes_multiply_as_in_itertools(tmp_path_factory: pytest.TempPathFactory, axes: dict[str, list[Any]]) -> None:
    text = to_toml({"system": {"kind": "bm25", "language": "none"}, "axes": axes, "settings": {"smoke": {}}})
    found = recipe(tmp_path_factory.mktemp("recipe"), HEAD + text)
    expected = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    assert [cell.values for cell in found.cells] == expected
    assert [cell.system.options for cell in found.cells] == [{"language": "none", **one} for one in expected]
    assert len({run.file for run in found.runs()}) == len(expected)


def test_labels_name_texts_alone_and_numbers_with_their_axis(tmp_path: Path) -> None:
    found = recipe(tmp_path, HEAD + GRID)
    assert labels(found)[:3] == ["english, k1=0.5", "english, k1=1", "english, k1=2.0"]
    assert [cell.system.options["k1"] for cell in found.cells[:3]] == [0.5, 1, 2.0]


def test_a_text_on_two_axes_is_named_with_its_axis(tmp_path: Path) -> None:
    text = HEAD + '[system]\nkind = "reranked"\nbackbone = "x"\n[axes]\nfirst = ["bm25", "dense"]\n'
    found = recipe(tmp_path, text + 'backbone = ["dense", "scratch"]\n[settings.smoke]\n')
    assert labels(found) == [
        "bm25, backbone=dense",
        "bm25, scratch",
        "first=dense, backbone=dense",
        "first=dense, scratch",
    ]


def test_values_may_be_lists_and_tables(tmp_path: Path) -> None:
    text = """
    [system]
    kind = "fused"
    [axes]
    systems = [["bm25"], ["bm25", "dense"], [{ kind = "bm25", k1 = 2 }, "dense"]]
    depth = [{ label = "shallow", set = { depth = 10, method = "rrf" } }, { label = "deep", set = { depth = 99 } }]
    [settings.smoke]
    """
    found = recipe(tmp_path, HEAD + text)
    assert labels(found)[:2] == ["bm25, shallow", "bm25, deep"]
    assert labels(found)[4:] == ["bm25 k1=2+dense, shallow", "bm25 k1=2+dense, deep"]
    assert found.cells[2].system.options == {"systems": ["bm25", "dense"], "depth": 10, "method": "rrf"}


@pytest.mark.parametrize("axis", ['"training.steps" = [1, 2]', "training.steps = [1, 2]"])
def test_an_axis_may_be_a_part_of_an_option(tmp_path: Path, axis: str) -> None:
    system = '[system]\nkind = "dense"\ntraining = { steps = 9, batch = 8 }\n'
    found = recipe(tmp_path, f"{HEAD}{system}[axes]\n{axis}\n[settings.smoke]\n")
    assert labels(found) == ["steps=1", "steps=2"]
    assert [cell.system.options["training"] for cell in found.cells] == [
        {"steps": 1, "batch": 8},
        {"steps": 2, "batch": 8},
    ]


def test_an_axis_may_change_the_data_and_the_parts(tmp_path: Path) -> None:
    text = """
    [system]
    kind = "@encoder"
    [parts.encoder]
    kind = "dense"
    size = 8
    [axes]
    data.documents = [100, 200]
    parts.encoder.size = [16, 32]
    [settings.smoke]
    """
    found = recipe(tmp_path, HEAD + text)
    assert [cell.data.documents for cell in found.cells] == [100, 100, 200, 200]
    assert [cell.system.parts["encoder"].options["size"] for cell in found.cells] == [16, 32, 16, 32]


def test_cells_by_hand_stand_beside_the_grid(tmp_path: Path) -> None:
    text = GRID.replace("[settings.smoke]", "") + '[[cells]]\nlabel = "like the grid"\nb = 0.1\n'
    text += '[[cells]]\nlabel = "alone"\nkind = "dense"\ndata = { documents = 9 }\n[settings.smoke]\n'
    found = recipe(tmp_path, HEAD + text.replace('kind = "bm25"', 'kind = "bm25"\nmethod = "atire"', 1))
    like, alone = found.cells[-2:]
    assert (like.system.kind, like.system.options) == ("bm25", {"method": "atire", "b": 0.1})
    assert (alone.system.kind, alone.system.options, alone.data.documents) == ("dense", {}, 9)
    assert [cell.values for cell in (like, alone)] == [{}, {}]


def test_what_is_left_out_need_not_be_possible(tmp_path: Path) -> None:
    text = HEAD + 'without = ["english, k1=-1"]\n' + GRID.replace("0.5", "-1")
    with pytest.raises(UsageError, match=r"k1 = -1\.0 should not be negative"):
        recipe(tmp_path, text)  # with `none` it is still there
    found = recipe(tmp_path, text.replace("english, k1=-1", "k1=-1"))
    assert labels(found) == ["english, k1=1", "english, k1=2.0", "none, k1=1", "none, k1=2.0"]


def test_a_setting_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    text = """
    title = "toy"
    measures = ["RR@10"]
    seeds = [7]
    [data]
    name = "python"
    test = "dev"
    [system]
    kind = "dense"
    training = { steps = 9, batch = 8 }
    [axes]
    size = [8, 16]
    unit = [true, false]
    [[cells]]
    label = "reranked"
    kind = "reranked"
    first = "bm25"
    [expect]
    order = ["size=8 < size=16"]
    tolerance = 0.5
    [settings.smoke]
    data = { documents = 50 }
    axes.size = [4]
    expect.order = []
    [settings.smoke.system.training]
    steps = 1
    [settings.smoke.cells.reranked]
    first = { k1 = 2 }
    [settings.paper]
    """
    smoke, paper = recipe(tmp_path, text), recipe(tmp_path, text, "paper")
    assert labels(smoke) == ["size=4, unit=true", "size=4, unit=false", "reranked"]
    assert smoke.cells[0].system.options["training"] == {"steps": 1, "batch": 8}
    assert smoke.cells[2].system.options == {"first": {"kind": "bm25", "k1": 2}}
    assert (smoke.cells[0].data.documents, smoke.cells[0].data.test) == (50, ("dev",))
    assert (smoke.order, len(paper.order[0].pairs)) == ((), 2)
    assert labels(paper)[:4] == ["size=8, unit=true", "size=8, unit=false", "size=16, unit=true", "size=16, unit=false"]
    assert paper.cells[0].system.options["training"] == {"steps": 9, "batch": 8}
    assert [cell.seeds for cell in smoke.cells] == [(7,)] * 3


def test_headline_cells_get_all_seeds_and_the_others_the_first(tmp_path: Path) -> None:
    text = HEAD + "seeds = [3, 1]\n" + GRID
    assert {cell.seeds for cell in recipe(tmp_path, text).cells} == {(3, 1)}
    found = recipe(tmp_path, 'headline = ["none", "english, k1=1"]\n' + text)
    assert {cell.label: cell.seeds for cell in found.cells} == {
        "english, k1=0.5": (3,),
        "english, k1=1": (3, 1),
        "english, k1=2.0": (3,),
        "none, k1=0.5": (3, 1),
        "none, k1=1": (3, 1),
        "none, k1=2.0": (3, 1),
    }
    assert [run.seed for run in found.runs()] == [3] * 6 + [1] * 4
    assert [run.cell.label for run in found.runs(only=["english, k1=1"], seeds=[1])] == ["english, k1=1"]
    several = found.runs(only=["english, k1=1", "k1=2.0"])  # a label, and a part of two others
    assert {run.cell.label for run in several} == {"english, k1=1", "english, k1=2.0", "none, k1=2.0"}
    assert [run.seed for run in several] == [3, 3, 3, 1, 1]
    with pytest.raises(UsageError, match="no cell of toy has 'k1=7' in its label"):
        found.runs(only=["k1=2.0", "k1=7"])
    with pytest.raises(UsageError, match="seed 4 is not a seed of toy in smoke; its seeds are 3, 1"):
        found.runs(seeds=[4])


# --- systems and parts ----------------------------------------------------------------------------------------

PARTS = """
title = "toy"
[data]
name = "python"
train = "dev"
[parts.encoder]
kind = "dense"
backbone = "scratch"
training = { steps = 5 }
[parts.second]
kind = "reranked"
first = "@encoder"
training = { split = "train", seed = 42 }
[[cells]]
label = "encoder"
kind = "@encoder"
[[cells]]
label = "all"
kind = "fused"
systems = ["bm25", "@encoder", "@second", { kind = "multivector" }]
[settings.smoke]
"""


def test_seed_and_split_go_wherever_nothing_else_was_said(tmp_path: Path) -> None:
    system = recipe(tmp_path, PARTS).cells[1].system.completed(seed=3, train="dev")
    assert system.options["systems"][1:3] == ["@encoder", "@second"]
    assert system.options["systems"][3]["training"]["seed"] == system.options["systems"][3]["index"]["seed"] == 3
    encoder, second = system.parts["encoder"].options, system.parts["second"].options
    assert (encoder["training"]["seed"], encoder["training"]["split"]) == (3, "dev")
    assert (second["training"]["seed"], second["training"]["split"], second["first"]) == (42, "train", "@encoder")
    assert system.parts["second"].parts["encoder"].options == encoder


def test_a_part_without_a_kind_is_the_system_with_other_options(tmp_path: Path) -> None:
    text = """
    [system]
    label = "grid"
    kind = "dense"
    training = { steps = 9, batch = 8 }
    [parts.long]
    training = { steps = 99 }
    [[cells]]
    label = "long"
    kind = "@long"
    [settings.smoke]
    system = { size = 8 }
    """
    grid, long = recipe(tmp_path, HEAD + text).cells
    assert grid.system.options == {"training": {"steps": 9, "batch": 8}, "size": 8}
    part = long.system.parts["long"]
    assert (part.kind, part.options) == ("dense", {**grid.system.options, "training": {"steps": 99, "batch": 8}})


def test_a_completed_system_is_the_same_system(tmp_path: Path) -> None:
    system = recipe(tmp_path, PARTS).cells[1].system
    usual = system.completed(seed=0, train="train")  # what the options are where nobody sets them
    assert config.to_dict(usual.unfitted()) == config.to_dict(system.unfitted())
    assert system.completed(seed=0, train="") == usual


def test_the_definition_is_what_was_said_and_nothing_else(tmp_path: Path) -> None:
    first = {run.file: run.definition for run in recipe(tmp_path, HEAD + GRID).runs()}
    second = {run.file: run.definition for run in recipe(tmp_path, HEAD.replace("toy", "other") + GRID).runs()}
    assert first == second
    for other in (
        HEAD.replace('"python"', '{ name = "python", documents = 9 }') + GRID,
        HEAD + 'measures = ["RR@10"]\n' + GRID,
        HEAD + "hits = 10\n" + GRID,
        HEAD + "runs = true\n" + GRID,
        HEAD + GRID.replace('kind = "bm25"', 'kind = "bm25"\nb = 0.5'),
    ):
        changed = {run.file: run.definition for run in recipe(tmp_path, other).runs()}
        assert changed.keys() == first.keys()
        assert not set(changed.values()) & set(first.values())


def test_how_fast_a_training_goes_is_no_part_of_its_definition(tmp_path: Path) -> None:
    said = HEAD + '[[cells]]\nlabel = "one"\nkind = "dense"\ntraining = { steps = 3 }\n[settings.smoke]\n'
    (plain,) = recipe(tmp_path, said).runs()
    (compiled,) = recipe(tmp_path, said.replace("steps = 3", "steps = 3, compile = true, workers = 1")).runs()
    (longer,) = recipe(tmp_path, said.replace("steps = 3", "steps = 4")).runs()
    assert plain.definition == compiled.definition != longer.definition
    assert compiled.cell.system.to_dict()["options"]["training"]["compile"] is True


# --- what is expected -----------------------------------------------------------------------------------------


def test_an_order_holds_for_every_value_of_the_other_axes(tmp_path: Path) -> None:
    found = recipe(tmp_path, HEAD + GRID + '[expect]\norder = ["k1=0.5 < k1=1 <= k1=2.0", "RR@10: english > none"]\n')
    first, second = found.order
    assert first.pairs == (
        Pair("english, k1=0.5", "english, k1=1", strict=True),
        Pair("none, k1=0.5", "none, k1=1", strict=True),
        Pair("english, k1=1", "english, k1=2.0", strict=False),
        Pair("none, k1=1", "none, k1=2.0", strict=False),
    )
    assert second.measure == "RR@10"
    assert second.pairs == tuple(Pair(f"none, k1={k1}", f"english, k1={k1}", strict=True) for k1 in ("0.5", "1", "2.0"))


def test_a_cell_by_hand_is_compared_with_all_that_are_named(tmp_path: Path) -> None:
    text = GRID.replace("[settings.smoke]", '[[cells]]\nlabel = "plain"\nkind = "bm25"\n[settings.smoke]')
    found = recipe(tmp_path, HEAD + text + '[expect]\norder = ["plain < none"]\n')
    assert [pair.more for pair in found.order[0].pairs] == ["none, k1=0.5", "none, k1=1", "none, k1=2.0"]


def test_expected_values_have_a_measure_and_a_tolerance(tmp_path: Path) -> None:
    text = """
    [expect]
    measure = "nDCG@10"
    tolerance = 0.02
    [expect.values]
    "none, k1=1" = 0.5
    "RR@10: k1=1, none" = { value = 0.25, tolerance = 0.1 }
    """
    found = recipe(tmp_path, HEAD + GRID + text)
    told = [(one.cell, one.measure, one.value, one.tolerance) for one in found.values]
    assert told == [("none, k1=1", "nDCG@10", 0.5, 0.02), ("none, k1=1", "RR@10", 0.25, 0.1)]


# --- mistakes -------------------------------------------------------------------------------------------------

MISTAKES = {
    "no title": (GRID, "the recipe has no title"),
    "no setting": (
        HEAD + GRID.replace("[settings.smoke]", "[settings.mini]"),
        "the recipe has no setting 'smoke'; known: mini",
    ),
    "unknown key": (HEAD + GRID.replace("[axes]", "[axis]"), "axis is not a key of a recipe; did you mean axes?"),
    "unknown key of a setting": (
        HEAD + GRID + "sedes = [1]",
        "sedes is not a key of settings.smoke; did you mean seeds?",
    ),
    "unknown name of a setting": (HEAD + GRID + "[settings.smok]", "smok is not a setting of settings"),
    "unknown key of the data": (
        HEAD + GRID + 'data = { nmae = "x" }',
        "data.nmae is not an option of Data; did you mean name?",
    ),
    "no data": ('title = "toy"\n' + GRID, "data has no name"),
    "unknown system": (HEAD + GRID.replace('"bm25"', '"bm52"'), "there is no system named 'bm52'; did you mean bm25?"),
    "no system": (HEAD + "[axes]\nk1 = [1]\n[settings.smoke]", "the system has no kind"),
    "no cells": (HEAD + "[settings.smoke]", "the recipe has no cells"),
    "unknown option": (HEAD + GRID.replace("k1 =", "kk1 ="), "kk1 is not an option of BM25; did you mean k1?"),
    "wrong value": (HEAD + GRID.replace("0.5", '"much"'), "k1 = 'much' should be a finite number"),
    "impossible value": (HEAD + GRID.replace("0.5", "-3"), "k1 = -3.0 should not be negative"),
    "empty axis": (HEAD + GRID.replace("[0.5, 1, 2.0]", "[]"), "the axis k1 has no values"),
    "axis that is no list": (HEAD + GRID.replace("[0.5, 1, 2.0]", "0.5"), "the axis k1 = 0.5 should be a list"),
    "value without a label": (
        HEAD + GRID.replace("[0.5, 1, 2.0]", "[{ set = { b = 1 } }]"),
        "a value of the axis k1 has no label",
    ),
    "same value twice": (HEAD + GRID.replace("[0.5, 1, 2.0]", "[1, 1]"), "the cell 'english, k1=1' occurs twice"),
    "same cell under two labels": (
        HEAD + GRID + '[[cells]]\nlabel = "x"\nk1 = 1\nlanguage = "none"\n',
        "the cell 'x' occurs twice, once as 'none, k1=1'",
    ),
    "two labels for one file": (
        HEAD + GRID + '[[cells]]\nlabel = "a b"\nb = 0.1\n[[cells]]\nlabel = "a-b"\nb = 0.2\n',
        "the cells 'a b' and 'a-b' give the same file name, a-b; change one label",
    ),
    "one label for two cells": (
        HEAD + GRID + '[[cells]]\nlabel = "a"\nb = 0.1\n[[cells]]\nlabel = "a"\nb = 0.2\n',
        "the cell 'a' occurs twice; keep one of them",
    ),
    "only measure that needs answers": (
        HEAD + 'measures = ["EM"]\n[system]\nkind = "dense"\n[settings.smoke]\n',
        "EM needs answers, and the cell 'dense' only finds documents",
    ),
    "only measures that need answers or probabilities": (
        HEAD + 'measures = ["EM", "Brier"]\n' + GRID,
        "EM needs answers, and the cell 'english, k1=0.5' only finds documents",
    ),
    "only measure that needs probabilities": (
        HEAD + 'measures = ["Brier"]\n[[cells]]\nlabel = "dense"\nkind = "dense"\n'
        '[[cells]]\nlabel = "all"\nkind = "fused"\nsystems = ["bm25", "dense"]\n[settings.smoke]\n',
        "Brier needs probabilities, and the scores of the cell 'all' are none",
    ),
    "only measure that needs probabilities of a part": (
        HEAD + 'measures = ["Brier"]\n[parts.words]\nkind = "bm25"\n[system]\nkind = "@words"\n[settings.smoke]\n',
        "Brier needs probabilities",
    ),
    "cell without a label": (HEAD + GRID + "[[cells]]\nb = 0.1\n", "a cell has no label"),
    "label that compares": (HEAD + GRID + '[[cells]]\nlabel = "a < b"\nb = 0.1\n', "the label holds a comparison sign"),
    "unknown cell in a setting": (
        HEAD + GRID + '[settings.smoke.cells."dens"]\nb = 0.1\n[[cells]]\nlabel = "dense"\nkind = "dense"\n',
        "changes the cell 'dens', which does not exist; did you mean dense?",
    ),
    "unknown part": (
        HEAD + '[parts.encoder]\nkind = "dense"\n[system]\nkind = "@encodre"\n[settings.smoke]\n',
        "there is no part @encodre; did you mean encoder?",
    ),
    "part of itself": (
        HEAD + '[parts.a]\nkind = "reranked"\nfirst = "@a"\n[system]\nkind = "@a"\n[settings.smoke]\n',
        "part a refers to itself",
    ),
    "part that is used nowhere": (
        HEAD + GRID + '[parts.encoder]\nkind = "dense"\nbakbone = "x"\n',
        "part 'encoder': bakbone is not an option of Dense; did you mean backbone?",
    ),
    "option of a part": (
        HEAD + '[parts.encoder]\nkind = "dense"\n[system]\nkind = "@encoder"\nsize = 8\n[settings.smoke]\n',
        "@encoder is a part and takes no option size",
    ),
    "impossible search of a part": (
        HEAD + '[parts.x]\nkind = "generative"\n[system]\nkind = "@x"\nsearch_options.width = 0\n[settings.smoke]\n',
        "width = 0",
    ),
    "hits": (HEAD + "hits = 0\n" + GRID, "hits = 0 should be a whole number above zero"),
    "runs": (HEAD + 'runs = "yes"\n' + GRID, "runs = 'yes' should be true or false"),
    "order of two measures": (
        HEAD + GRID + '[expect]\norder = ["RR@10, Success@1: k1=0.5 < k1=1"]\n',
        "is about 2 measures; write a statement for each",
    ),
    "value of another split": (
        HEAD.replace('"python"', '{ name = "python", test = ["test", "dev"] }')
        + GRID
        + '[expect.values]\n"dev: none, k1=1" = 0.5\n',
        "all values are of the split test; set expect.split",
    ),
    "unknown measure": (HEAD + 'measures = ["NDGC@10"]\n' + GRID, "NDGC"),
    "no measure": (HEAD + "measures = []\n" + GRID, "there is no measure to compute"),
    "expected measure": (HEAD + GRID + '[expect]\nmeasure = "AP"\n', "expect.measure = 'AP' is not measured"),
    "expected split": (HEAD + GRID + '[expect]\nsplit = "dev"\n', "expect.split = 'dev', but the cell"),
    "unknown key of expect": (
        HEAD + GRID + "[expect]\nordre = []\n",
        "ordre is not a key of expect; did you mean order?",
    ),
    "order of no cell": (HEAD + GRID + '[expect]\norder = ["k1=3 < k1=1"]\n', "names 'k1=3', which is not a cell"),
    "plot of no axis": (HEAD + 'plot = "k2"\n' + GRID, "plot = 'k2' is not an axis; known: k1, language"),
    "order of a difference of many": (
        HEAD + GRID + '[expect]\norder = ["k1=1 - k1=0.5 < none, k1=1"]\n',
        "names 2 cells by 'k1=1'; in a difference, name one cell, such as 'english, k1=1'",
    ),
    "order of a longer difference": (
        HEAD + GRID + '[expect]\norder = ["none, k1=1 - none, k1=0.5 - none, k1=2.0 < none, k1=1"]\n',
        "subtracts more than one cell",
    ),
    "order without a sign": (HEAD + GRID + '[expect]\norder = ["k1=1, k1=0.5"]\n', "has no comparison"),
    "order of different axes": (
        HEAD + GRID + '[expect]\norder = ["none < k1=1"]\n',
        "compares values of different axes",
    ),
    "order with itself": (
        HEAD + GRID + '[expect]\norder = ["k1=1 < k1=1"]\n',
        "does not compare two different cells",
    ),
    "order by another measure": (
        HEAD + GRID + '[expect]\norder = ["RR@5: k1=0.5 < k1=1"]\n',
        "is about RR@5, which is not measured",
    ),
    "order that is no list": (HEAD + GRID + '[expect]\norder = "k1=0.5 < k1=1"\n', "should be a list of texts"),
    "value of no cell": (
        HEAD + GRID + "[expect.values]\ndense = 0.5\n",
        "expect.values names 'dense', which is not a cell",
    ),
    "value of several cells": (HEAD + GRID + "[expect.values]\nnone = 0.5\n", "expect.values names 3 cells by 'none'"),
    "value that is no number": (HEAD + GRID + '[expect.values]\n"none, k1=1" = "high"\n', "should be a number"),
    "headline of no cell": (HEAD + 'headline = ["k1=3"]\n' + GRID, "headline names 'k1=3', which is not a cell"),
    "no seeds": (HEAD + "seeds = []\n" + GRID, "seeds = [] should be a list of different whole numbers"),
    "a seed twice": (HEAD + "seeds = [1, 1]\n" + GRID, "should be a list of different whole numbers"),
    "timeout": (HEAD + "timeout = -1\n" + GRID, "timeout = -1 should be a number that is not negative"),
    "a table that is none": (
        'title = "toy"\ndata = "python"\nsystem = "bm25"\n[settings.smoke]\n',
        "should be a table",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(tmp_path: Path, mistake: str) -> None:
    text, sentence = MISTAKES[mistake]
    with pytest.raises(UsageError) as caught:
        recipe(tmp_path, text)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("toy.toml: ")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_recipe_that_is_not_there_names_its_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="did you mean baselines/python"):
        find("baselines/pyhton")
    (tmp_path / "recipes" / "mine").mkdir(parents=True)
    (tmp_path / "recipes" / "mine" / "own.toml").write_text("title = ")
    assert recipe_name(find("mine/own")) == recipe_name(find("recipes/mine/own.toml")) == "mine/own"
    with pytest.raises(UsageError, match="not valid TOML"):
        read("mine/own", "smoke")


def test_a_recipe_that_is_like_another_is_that_one_with_its_changes(tmp_path: Path) -> None:
    by_hand = '[[cells]]\nlabel = "alone"\nkind = "dense"\ntraining = { steps = 3, batch = 4 }\n'
    (tmp_path / "first.toml").write_text(HEAD + GRID + "axes.k1 = [1]\n" + by_hand, encoding="utf-8")
    (tmp_path / "second.toml").write_text(
        f'like = "{tmp_path / "first.toml"}"\ntitle = "other"\nseeds = [4]\n'
        "[data]\ndocuments = 50\n[cells.alone]\ntraining = { steps = 9 }\n[settings.mini]\ntimeout = 5\n",
        encoding="utf-8",
    )
    by_itself = recipe(
        tmp_path,
        'title = "other"\nseeds = [4]\ndata = { name = "python", documents = 50 }\n'
        + GRID
        + "axes.k1 = [1]\n"
        + by_hand.replace("steps = 3", "steps = 9"),
    )
    like = read(tmp_path / "second.toml", "smoke")
    assert replace(like, name="") == replace(by_itself, name="")
    assert labels(read(tmp_path / "second.toml", "mini")) == [*labels(recipe(tmp_path, HEAD + GRID)), "alone"]


def test_measures_that_a_system_does_not_give_are_no_mistake_while_another_is_left(tmp_path: Path) -> None:
    systems = '[[cells]]\nlabel = "words"\nkind = "bm25"\n[[cells]]\nlabel = "dense"\nkind = "dense"\n'
    reader = '[[cells]]\nlabel = "reader"\nkind = "answerer"\n'
    assert recipe(tmp_path, HEAD + 'measures = ["EM", "Brier", "RR@10"]\n' + systems + reader).measures[0] == "EM"
    dense = systems.partition("[[cells]]")[2].partition("[[cells]]")[2]
    assert labels(recipe(tmp_path, HEAD + f'measures = ["EM", "Brier"]\n[[cells]]{dense}')) == ["dense"]
    assert labels(recipe(tmp_path, HEAD + f'measures = ["EM"]\n{reader}')) == ["reader"]


def test_what_a_recipe_is_like_is_looked_for_beside_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.toml").write_text('like = "table.toml"\n', encoding="utf-8")
    (tmp_path / "own" / "table.toml").write_text(HEAD.replace("toy", "beside") + GRID, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for like in ("table.toml", "table"):
        (tmp_path / "own" / "mine.toml").write_text(f'like = "{like}"\n', encoding="utf-8")
        assert read("own/mine.toml", "smoke").title == "beside"
    (tmp_path / "table.toml").write_text(HEAD.replace("toy", "here") + GRID, encoding="utf-8")
    assert read("own/mine.toml", "smoke").title == "beside"
    (tmp_path / "own" / "table.toml").unlink()
    assert read("own/mine.toml", "smoke").title == "here"
    (tmp_path / "own" / "table.toml").write_text('like = "table"\ntitle = "own"\n', encoding="utf-8")
    assert read("own/table.toml", "smoke").title == "own", "itself is not what it is like"
    (tmp_path / "own" / "mine.toml").write_text('like = "tabel.toml"\n', encoding="utf-8")
    sentence = (
        r"mine\.toml: there is no recipe tabel\.toml beside mine\.toml, in the current folder or below recipes/; "
    )
    with pytest.raises(UsageError, match=sentence):
        read("own/mine.toml", "smoke")
    (tmp_path / "own" / "mine.toml").write_text('like = "mine.toml"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "own")
    with pytest.raises(UsageError, match="leads back to this recipe"):
        read("mine.toml", "smoke")


def test_a_folder_is_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in ("tables", tmp_path / "tables", "study"):
        with pytest.raises(UsageError, match=f"^{folder} is a folder; name a .toml in it$"):
            find(folder)
    (tmp_path / "tables.toml").write_text(HEAD + GRID, encoding="utf-8")
    assert find("tables") == Path("tables.toml")


def test_a_recipe_may_be_named_without_its_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(HEAD + GRID, encoding="utf-8")
    assert find("mine") == find("mine.toml") == Path("mine.toml")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_recipe_without_settings_runs_as_it_stands(tmp_path: Path, setting: str) -> None:
    whole = recipe(tmp_path, HEAD + GRID)
    alone = recipe(tmp_path, HEAD + GRID.replace("[settings.smoke]", ""), setting)
    assert alone == replace(whole, setting=setting, as_it_stands=True)


def test_labels_are_listed_in_quotes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has 'zzzz' in its label; known: 'english, k1=0\.5', 'english, k1=1', "):
        recipe(tmp_path, HEAD + GRID).chosen(["zzzz"])


def test_own_data_stay_in_all_settings_of_the_recipe_that_it_is_like(tmp_path: Path) -> None:
    settings = """[settings.mini]
data = { documents = 30 }
[settings.paper]
data = "python"
"""
    small = '[settings.smoke]\ndata = { name = "python", test = "dev", documents = 9, expansions = "python" }\n'
    whole = 'data = { name = "python", train = "dev", expansions = "python", first = ["dev"] }'
    text = HEAD.replace('data = "python"', whole) + GRID.replace("[settings.smoke]\n", small) + settings
    (tmp_path / "first.toml").write_text(text, encoding="utf-8")
    like = f'like = "{tmp_path / "first.toml"}"\n'
    (tmp_path / "second.toml").write_text(like + '[data]\nname = "own"\ndocuments = 500\n', encoding="utf-8")
    for setting, documents in {"smoke": 9, "mini": 30, "paper": 500}.items():
        data = read(tmp_path / "second.toml", setting).cells[0].data
        assert (data.name, data.test, data.documents, data.expansions) == ("own", ("test",), documents, "")
        assert (data.train, data.first) == ("dev", ())
    (tmp_path / "third.toml").write_text(f'{like}data = "own"\n{small}', encoding="utf-8")
    data = read(tmp_path / "third.toml", "smoke").cells[0].data
    assert (data.name, data.test, data.documents, data.expansions) == ("python", ("dev",), 9, "python")


def test_a_recipe_that_is_like_itself_is_one_sentence(tmp_path: Path) -> None:
    for one, other in (("toy", "toys"), ("toys", "toy")):
        (tmp_path / f"{one}.toml").write_text(f'like = "{tmp_path / other}.toml"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"toys.toml: like = .* leads back to this recipe"):
        read(tmp_path / "toy.toml", "smoke")


def test_an_order_may_be_about_differences_of_cells(tmp_path: Path) -> None:
    text = HEAD + GRID + '[[cells]]\nlabel = "a - b"\nkind = "dense"\n[expect]\norder = ["%s"]\n'
    gains = "english, k1=1 - english, k1=0.5"
    [order] = recipe(tmp_path, text % f"RR@10: none, k1=1 - none, k1=0.5 > {gains}").order
    expected = Pair("english, k1=1", "none, k1=1", True, "english, k1=0.5", "none, k1=0.5")
    assert (order.measure, order.pairs) == ("RR@10", (expected,))
    [order] = recipe(tmp_path, text % f"a - b <= {gains}").order
    assert order.pairs == (Pair("a - b", "english, k1=1", False, "", "english, k1=0.5"),), "a label is not divided"
    planned = recipe(tmp_path, text % f"a - b <= {gains}").plan()["order"][0]["pairs"]
    assert planned == ({"less": "a - b", "more": "english, k1=1", "strict": False, "more_minus": "english, k1=0.5"},)


def test_a_plot_has_a_line_for_every_combination_of_the_other_axes(tmp_path: Path) -> None:
    by_hand = '[[cells]]\nlabel = "alone"\nkind = "dense"\n'
    text = HEAD + 'plot = "k1"\nwithout = ["english, k1=1"]\n' + GRID + by_hand
    assert recipe(tmp_path, text).plan().get("plot") == {
        "axis": "k1",
        "lines": {
            "english": {"k1=0.5": "english, k1=0.5", "k1=2.0": "english, k1=2.0"},
            "none": {"k1=0.5": "none, k1=0.5", "k1=1": "none, k1=1", "k1=2.0": "none, k1=2.0"},
        },
    }
    single = text.replace('language = ["english", "none"]\n', "").replace("english, ", "")
    assert recipe(tmp_path, single).plan()["plot"]["lines"] == {"k1": {"k1=0.5": "k1=0.5", "k1=2.0": "k1=2.0"}}
    assert "plot" not in recipe(tmp_path, HEAD + GRID).plan()


# --- what is shipped ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=recipe_name)
def test_a_shipped_recipe_can_be_read_in_all_its_settings(path: Path) -> None:
    raw = config.read_toml(path)
    whole = raw if "like" not in raw else config.read_toml(find(raw["like"]))
    there = [setting for setting in SETTINGS if setting in whole["settings"]]
    assert "smoke" in there
    for setting in there:
        assert read(path, setting).runs()


QUICK = [path for path in SHIPPED if recipe_name(path) in ("baselines/python", "contextual/zero-shot")]


@pytest.mark.parametrize("path", quick(*QUICK, of=SHIPPED), ids=recipe_name)
def test_the_smoke_setting_of_a_shipped_recipe_runs(path: Path, tmp_path: Path) -> None:
    found = experiment.run_recipe(read(path, "smoke"), out=tmp_path / "results", work=tmp_path / "work")
    assert found.failed == []
    assert all(len(row.results) == row.planned for row in found.rows)


def test_the_paper_setting_of_views_has_the_paper_s_numbers_and_asks_a_t5_for_nothing_that_it_cannot_do() -> None:
    found = read(ROOT / "recipes" / "scaling" / "views.toml", "paper")
    written = [cell.system.options for cell in found.cells if cell.system.kind == "generative"]
    assert len(written) == 4 * 7 + 1
    for options in written:
        training = options["training"]
        assert options["search_options"]["width"] == 40
        assert options["decoder"]["rows"] == "random"
        assert training["warmup"] * training["steps"] == (100_000 if options["docids"] == "atomic" else 10_000)


CONTEXTUAL = [path for path in SHIPPED if path.parent.name == "contextual"]


def trained(run: Run) -> System:
    """What a run trains: its system, or the part that it searches."""
    system = run.cell.system.completed(run.seed, run.cell.data.train)
    return system.parts[system.kind.removeprefix("@")] if system.is_part else system


STUDIED = {"Async once", "GENRE*, slower", "Base, slow reader", "Async, slow reader", "Contra, slow reader"}
"""Cells that ask why the paper's are as they are, with numbers that are not the paper's."""


def test_the_paper_setting_of_contextual_recipes_has_the_paper_s_numbers() -> None:
    for found in (read(path, "paper") for path in CONTEXTUAL):
        assert found.hits == 10
        of_the_paper = [run for run in found.runs(seeds=[0]) if run.cell.label not in STUDIED]
        for made in map(trained, of_the_paper):
            if made.kind != "contextual":
                continue
            options, training = made.options, made.options["training"]
            assert options["backbone"] == "google-t5/t5-large"
            assert options["search_options"]["width"] == 10
            told = [training[key] for key in ("optimizer", "learning_rate", "warmup", "decay", "batch", "reader")]
            assert told == ["adafactor", 1e-4, 0.1, "linear", 512, 1.0]
            assert 150 // training["rounds"] * options["vocabulary"]["every"] in (0, 10, 20, 50)


def test_no_training_is_in_two_contextual_recipes() -> None:
    at_home: dict[str, Path] = {}
    for path in CONTEXTUAL:
        for run in read(path, "mini").runs():
            what = json.dumps([run.cell.data.name, trained(run).to_dict()], sort_keys=True)
            assert at_home.setdefault(what, path) == path, run.cell.label


def test_the_example_of_the_page_is_a_recipe(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    whole = next(text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "title" in text)
    for setting in SETTINGS:
        found = recipe(tmp_path, whole, setting)
        assert all(cell.system.kind.lstrip("@") in (*KINDS, *cell.system.parts) for cell in found.cells)
        assert json.dumps(found.plan())
