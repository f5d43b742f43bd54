"""Pages that are made from results show what is there, and say so where nothing is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import front_page, study_page
from triever.lab.pages import pages
from triever.lab.recipes import Recipe, read
from triever.lab.results import write
from triever.lab.tables import PLAN

MACHINE = {"processor": "x", "cores": 16, "gpu": "NVIDIA H200", "system": "Linux"}


def measured(recipe: Recipe, folder: Path, scores: dict[str, float], **more: Any) -> None:
    """Made-up results of some cells, all seeds, a little apart from each other."""
    for run in recipe.runs():
        if run.cell.label in scores:
            means = dict.fromkeys(recipe.measures, scores[run.cell.label] + run.seed / 1000)
            values = {m: {"mean": mean, "low": mean - 0.02, "high": mean + 0.02} for m, mean in means.items()}
            report = {"scores": {run.cell.label: values}, "extra": {run.cell.label: {"queries/s": 400}}}
            result = {
                "cell": run.cell.label,
                "seed": run.seed,
                "definition": run.definition,
                "seconds": 5.0,
                "reports": {recipe.split: report},
                "data": {"dataset": "made-up", "fingerprint": "0"},
                "hardware": MACHINE,
                "documents": 1000,
                "memory": {"vectors": 1_536_000, "weights": 9},
                "fit_seconds": 90.0,
                "system": {"kind": "x"},
                **more,
            }
            write(folder / recipe.name / recipe.setting / run.file, result)
    write(folder / recipe.name / recipe.setting / PLAN, recipe.plan())


@pytest.fixture(scope="module")
def systems() -> Recipe:
    return read("systems/wiki", "mini")


def test_the_first_page_shows_costs_once_there_are_some(tmp_path: Path, systems: Recipe, root: Path) -> None:
    page = (root / "README.md").read_text(encoding="utf-8")
    without = front_page.render(page, tmp_path / "nothing")
    assert "bytes a document" not in without
    beside = {"load": 20.0, "gpu_mb": 50_000}
    measured(systems, tmp_path, {"BM25": 0.6, "dense": 0.7}, beside=beside)
    shown = front_page.render(page, tmp_path)
    assert front_page.table() in shown, "what was there stays"
    head = (
        "| system | Success@1 | Success@10 | RR@10 | Brier | seeds | ms a query | bytes a document | minutes to fit |"
    )
    assert head in shown
    assert "| dense | 0.700 | 0.700 | 0.700 | 0.700 | 1 | 2.50 | 1,536 | 1.5 |" in shown
    assert "made-up, dev.nq:" in shown
    assert "All times were taken beside other work on the same machine, so they are longer than alone." in shown
    assert front_page.render(shown, tmp_path) == shown
    assert front_page.render(shown, tmp_path / "nothing") == without


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"beside": {"load": 1.0, "gpu_mb": 0}}, "Nothing else ran on the machine."),
        ({}, "Whether other work ran beside it was not recorded."),
    ],
    ids=["alone", "older"],
)
def test_a_page_says_how_its_times_were_taken(tmp_path: Path, systems: Recipe, more: Any, said: str) -> None:
    measured(systems, tmp_path, {"dense": 0.7}, **more)
    made = pages(tmp_path)
    assert said in made["results/systems/wiki.md"]
    assert said in made["results.md"]
    assert "## All systems" in made["results.md"]


def test_a_page_names_models_that_are_as_they_came(tmp_path: Path, systems: Recipe) -> None:
    measured(systems, tmp_path, {"dense": 0.7}, made_from={"trained steps": 200, "best step": 0})
    measured(systems, tmp_path, {"BM25": 0.6, "late interaction": 0.7}, made_from={"trained steps": 9, "best step": 9})
    assert "so these models are as they came: dense (every seed)." in pages(tmp_path)["results/systems/wiki.md"]


@pytest.mark.parametrize("claim", study_page.CLAIMS, ids=lambda claim: f"{claim.recipe} {claim.measure}")
def test_a_claim_names_orders_and_cells_of_its_recipe(claim: study_page.Claim) -> None:
    recipe = read(claim.recipe, study_page.SETTING)
    assert {*claim.orders} <= {order.statement for order in recipe.order}
    assert {*claim.cells} <= {cell.label for cell in recipe.cells}
    assert claim.measure in recipe.measures
    assert {order.measure for order in recipe.order if order.statement in claim.orders} == {claim.measure}


def test_the_page_of_the_study_is_made_from_the_results(root: Path) -> None:
    page = study_page.PAGE.read_text(encoding="utf-8")
    assert page == study_page.render(page), "run: make pages"
    settings = study_page.MENU.read_text(encoding="utf-8")
    assert settings == study_page.menu(settings), "run: make pages"


def test_a_claim_has_its_verdict_once_its_cells_are_measured(tmp_path: Path) -> None:
    claim, recipe = study_page.CLAIMS[0], read("study/negatives", "mini")

    def result() -> str:
        return study_page.result(claim, study_page.table_of(tmp_path / claim.recipe / study_page.SETTING))

    assert result() == study_page.TO_BE_RUN
    measured(recipe, tmp_path, {f"dense, shared={count}": 0.9 - count / 2048 for count in (8, 128, 1024)})
    assert result().startswith("**does not hold**. Success@1: dense, shared=8 0.897")
    rising = {
        f"{system}, shared={count}": 0.4 + count / 2048 for system in ("dense", "multivector") for count in (8, 128)
    }
    measured(recipe, tmp_path, rising)
    measured(recipe, tmp_path, {"dense, shared=1024": 0.8})
    assert result().startswith("**in part to be run (holds in 1 of 3 orders)**")
    measured(recipe, tmp_path, {"multivector, shared=1024": 0.8})
    shown = "dense, shared=8 0.405 ± 0.001; dense, shared=1024 0.801 ± 0.001; "
    assert result().startswith(f"**holds**. Success@1: {shown}")
    assert result().endswith("([all numbers](../results/study/negatives.md))")


def test_the_menu_has_the_pages_that_there_are(tmp_path: Path) -> None:
    settings = "nav:\n  - Results:\n      # made: results of the study\n      # end\nplugins: []\n"
    assert study_page.menu(settings, tmp_path) == settings
    for name in ("study/size", "study/hard", "systems/wiki"):
        path = tmp_path / "results" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# x\n")
    made = study_page.menu(settings, tmp_path)
    assert re.findall(r"results/\S+", made) == [
        "results/study/hard.md",
        "results/study/size.md",
        "results/systems/wiki.md",
    ]
    assert made.splitlines()[3:5] == ["      - Generative against dense:", "          - hard: results/study/hard.md"]
    assert study_page.menu(made, tmp_path) == made
    assert study_page.menu(made, tmp_path / "empty") == settings


def test_models_of_growth_are_those_that_decoding_searches() -> None:
    """So that what one recipe trains need not be trained for the other: parts are kept by their definition."""
    growth, decoding = read("study/growth", "mini"), read("study/decoding", "mini")
    [trained] = [cell for cell in growth.cells if cell.label == "codebook by symbols, documents=8500"]
    [searched] = [cell for cell in decoding.cells if cell.label == "codebook, beam"]
    both = [cell.system.completed(0, cell.data.train).parts for cell in (trained, searched)]
    assert json.dumps(both[0]["symbols"].to_dict()) == json.dumps(both[1]["codebook"].to_dict())
    assert (trained.data.documents, trained.data.first) == (searched.data.documents, searched.data.first)


def test_new_weights_are_tried_in_the_systems_of_growth() -> None:
    growth, adapters = (
        {cell.label: cell for cell in read(recipe, "mini").cells} for recipe in ("study/growth", "study/adapters_wiki")
    )
    for name, part, own in (("dense", "dense", "dense"), ("codebook by symbols", "symbols", "codebook")):
        tried, grown = adapters[f"{own}, no adapter"], growth[f"{name}, documents=8500"]
        assert tried.data == grown.data
        whole = tried.system.completed(0, tried.data.train)
        parts = grown.system.completed(0, grown.data.train).parts
        assert json.dumps(whole.to_dict()) == json.dumps(parts[part].to_dict())
