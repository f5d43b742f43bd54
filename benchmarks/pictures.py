"""Pictures of the documentation, drawn from what was measured: `make pages`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from triever.evaluation.finding import Bars
from triever.evaluation.picture import draw_bars, draw_lines, draw_points

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
FIGURES = HERE.parent / "docs" / "figures"
Cells: TypeAlias = dict[str, dict[str, dict[str, Any]]]
"""The results of cells, by docids and by depth."""


def main() -> None:
    rows = _read(HERE / "search_docids.json")["rows"]
    draw_points(rows, "queries_per_second", ("Success@10", "agreement"), FIGURES / "search_docids.svg")
    measured = _read(HERE / "peers.json")["rows"]
    draw_points(measured, "queries_per_second", ("Success@1", "Success@10"), FIGURES / "peers.svg")
    cut = [row for row in _read(HERE / "clusters.json")["rows"] if row["margin"] == row["alpha"] == 0]
    named = [{"system": f"{row['clusters']:,} clusters", **row} for row in cut]
    draw_points(named, "compared", ("Success@1", "Success@100"), FIGURES / "gdr_clusters.svg")
    sources = ("nq", "entityq", "opentrivia")
    draw_bars([_seen(source) for source in sources], FIGURES / "contextual_seen.svg")
    draw_bars([_ids_of_a_token(source) for source in sources], FIGURES / "contextual_k.svg")
    draw_lines(_dial(), FIGURES / "gdr_dial.svg")
    theory = _read(HERE / "theory.json")
    draw_lines(_gaps(theory), FIGURES / "theory_normalisation.svg")
    draw_lines(_tails(theory), FIGURES / "theory_tails.svg", logarithmic=True)
    draw_lines(_ranks(theory), FIGURES / "theory_rank.svg")
    draw_bars(_posterior(theory), FIGURES / "theory_posterior.svg")


DEPTHS = ("depth=0", "depth=1", "depth=2", "depth=3", "depth=4", "whole")
DOCIDS = ("semantic", "codebook")
AFTER, BEFORE = "a row for every node", "a row for every symbol"


def _dial() -> list[Bars]:
    """Quality, time for one question and memory, from dense to generative retrieval.

    Rows of symbols are dashed beside rows of nodes, if these have been measured on the same documents.
    """
    before, after = (
        _cells(*recipe) for recipe in (("gdr", "depth", *DEPTHS, "written"), ("rows", "dial_wiki", *DEPTHS))
    )
    assert before is not None  # their results are kept
    measured = {AFTER: after, BEFORE: before} if after else {"": before}
    labels = [step.removeprefix("depth=") for step in before["semantic"]]
    timed = {AFTER: "search_dial.json", BEFORE: "search_depth.json", "": "search_depth.json"}

    def panel(title: str, values: Callable[[str, Cells, str], list[float | None]]) -> Bars:
        series = {
            f"{kind}, {variant}" if variant else kind: values(variant, cells, kind)
            for variant, cells in measured.items()
            for kind in DOCIDS
        }
        width = len(labels)
        return Bars(title, labels, {name: [*given, *[None] * (width - len(given))] for name, given in series.items()})

    panels = [
        panel("R@1", lambda _, cells, kind: [_score(cell, "dev.nq", "R@1") for cell in cells[kind].values()]),
        panel("R@100", lambda _, cells, kind: [_score(cell, "dev.nq", "R@100") for cell in cells[kind].values()]),
        panel("ms for one question", lambda variant, _, kind: _milliseconds(timed[variant], kind)),
        panel("bytes for a document", lambda _, cells, kind: [_held_at(*pair) for pair in cells[kind].items()]),
    ]
    asked = _cells("rows", "dial", *DEPTHS)
    return [*panels, _asked_about_all(asked)] if asked else panels


def _asked_about_all(cells: Cells) -> Bars:
    """The same dial where every document has questions, for rows of nodes alone."""
    scores = {
        f"{kind}, {AFTER}": [_score(cell, "docseen_dev", "R@1") for cell in cells[kind].values()] for kind in DOCIDS
    }
    return Bars("R@1, squad-partial", [step.removeprefix("depth=") for step in DEPTHS], scores)


def _cells(folder: str, recipe: str, *steps: str) -> Cells | None:
    """The results of a recipe by docids and depth, or none if not all of them have been measured."""
    there = RESULTS / folder / recipe / "mini"
    files = {kind: {step: there / f"{kind}-{step}-seed0.json" for step in steps} for kind in DOCIDS}
    if not all(file.is_file() for of_kind in files.values() for file in of_kind.values()):
        return None
    return {kind: {step: _read(file) for step, file in of_kind.items()} for kind, of_kind in files.items()}


def _score(cell: dict[str, Any], split: str, measure: str) -> float:
    [scores] = cell["reports"][split]["scores"].values()
    return scores[measure]["mean"]


def _milliseconds(file: str, kind: str) -> list[float | None]:
    """The time of a search at depths 0 to 4 and with whole docids; none where it was not measured."""
    if not (HERE / file).is_file():
        return [None] * len(DEPTHS)
    rows = [row for row in _read(HERE / file)["rows"] if row["system"].startswith(f"{kind}, depth ")]
    return [row["ms_for_one"] for row in (*rows[:5], rows[-1])]


def _held_at(step: str, cell: dict[str, Any]) -> float:
    """The bytes for a document: of vectors or rows, if any are matched, and of the trie and docids, if any are written.

    Rows are matched at every depth.
    """
    memory = cell["memory"]
    written = 0 if step == "depth=0" else sum(memory[part] for part in ("trie", "walk", "docids", "numbers"))
    matched = 0 if step == "written" else memory.get("cluster vectors", memory["docid rows"])
    return (written + matched) / cell["documents"]


def _seen(source: str) -> Bars:
    """Means over seeds for questions about documents that training questions were about, and for all others."""
    files = sorted((RESULTS / "contextual" / "seen").glob(f"{source}-seed*.json"))
    findings = [_read(file)["finding"]["values"] for file in files]
    groups = ("seen", "unseen")
    labels = [f"{group} ({findings[0]['questions'][group]:,})" for group in groups]
    series = {
        name: [mean(finding["scores"][name][group]["mean"] for finding in findings) for group in groups]
        for name in findings[0]["scores"]
    }
    return Bars(f"{source}: R-precision", labels, series)


def _ids_of_a_token(source: str) -> Bars:
    """Figure 5 of the paper: R-precision by the number of ids for each token of titles, for one seed."""
    cells = {0: "GENRE", 5: "Base"} | {k: f"k={k}" for k in (1, 2, 3, 10, 20)}
    folder = RESULTS / "contextual" / "variants" / "mini"
    scores = [_score(_read(folder / f"{cells[k]}-seed0.json"), f"dev.{source}", "Rprec") for k in sorted(cells)]
    return Bars(f"{source}: R-precision", [f"k={k}" for k in sorted(cells)], {"ids of a token": scores})


def _gaps(theory: dict[str, Any]) -> list[Bars]:
    """The gap of made-up scores by the score of the relevant document, and of the default corpus by the candidates."""
    names = {
        "bound": "log(N/K)",
        "drawn": "gap with K drawn",
        "with_positive": "gap with the relevant one inside",
        "bound_with_positive": "its bound",
    }
    made_up, corpus = theory["normalisation"], theory["corpus"]["normalisation"]
    shown = [row for row in made_up if row["positive"] <= HIGHEST]
    about = f"{corpus['documents']:,} entries of the default corpus, by K"
    panels = [
        (f"2,000 made-up scores, K = 64, by the score of the relevant one (to {HIGHEST})", shown, "positive"),
        (about, corpus["gaps"], "candidates"),
    ]
    return [
        Bars(title, [f"{row[x]:g}" for row in rows], {name: [row[key] for row in rows] for key, name in names.items()})
        for title, rows, x in panels
    ]


HIGHEST = 12
"""The highest score of a relevant document that is drawn."""


def _tails(theory: dict[str, Any]) -> list[Bars]:
    """How often the mean of K draws is too small, by how much, beside both bounds, as far as that is not rare."""
    names = {"lower": "measured", "printed": "bound as printed", "lower_bound": "bound that holds"}
    sources = {
        "20 throws of a coin": theory["tails"]["coin"],
        "64 of 2,000 normal scores": theory["tails"]["normal scores"],
        "64 scores of one question, default corpus": theory["corpus"]["tails"],
    }
    return [
        Bars(
            f"{title}: lower tail by ε",
            [f"{row['epsilon']:g}".removeprefix("0") for row in source["rows"]],
            {name: [_seen_often(row[key]) for row in source["rows"]] for key, name in names.items()},
        )
        for title, source in sources.items()
    ]


RAREST = 1e-4
"""The smallest probability that is drawn."""


def _seen_often(probability: float) -> float | None:
    return probability if probability >= RAREST else None


def _ranks(theory: dict[str, Any]) -> list[Bars]:
    """What vectors of a size miss of made-up scores and of those of two models."""
    made_up = theory["rank"]
    sizes = [*next(iter(made_up.values()))["errors"]]
    first = {name.replace(", ", ": "): [*tail["errors"].values()] for name, tail in made_up.items()}
    models = {"dense: 384 numbers": "rank dense", "late interaction: tokens of 128": "rank late"}
    found = {name: theory["corpus"][key] for name, key in models.items()}
    rows = {name: [row["error"] for row in values["sizes"]] for name, values in found.items()}
    others = {name: [1 - row["same_first"] for row in values["sizes"]] for name, values in found.items()}
    steps = [f"{row['size']}" for row in next(iter(found.values()))["sizes"]]
    return [
        Bars("made-up scores: least error by size of vectors", sizes, first),
        Bars("default corpus: least error", steps, rows),
        Bars("default corpus: share of questions with another first document", steps, others),
    ]


def _posterior(theory: dict[str, Any]) -> list[Bars]:
    """How far estimates of what prefixes weigh are from exact sums."""
    both = {"rows are vectors": "posterior untrained", "after training": "posterior trained"}
    found = {name: theory["corpus"][key]["estimates"] for name, key in both.items()}
    labels = [*next(iter(found.values()))]
    titles = {"divergence": "KL(exact || estimate) of docids, nats", "same_best": "same best symbol"}
    return [
        Bars(title, labels, {name: [values[label][key] for label in labels] for name, values in found.items()})
        for key, title in titles.items()
    ]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
