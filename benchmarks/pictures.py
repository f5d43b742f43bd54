"""Pictures of the documentation, drawn from what was measured: `make pages`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from triever.evaluation.finding import Bars
from triever.evaluation.picture import draw_bars, draw_lines, draw_points

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
FIGURES = HERE.parent / "docs" / "figures"


def main() -> None:
    rows = _read(HERE / "search_docids.json")["rows"]
    draw_points(rows, "queries_per_second", ("Success@10", "agreement"), FIGURES / "search_docids.svg")
    cut = [row for row in _read(HERE / "clusters.json")["rows"] if row["margin"] == row["alpha"] == 0]
    named = [{"system": f"{row['clusters']:,} clusters", **row} for row in cut]
    draw_points(named, "compared", ("Success@1", "Success@100"), FIGURES / "gdr_clusters.svg")
    sources = ("nq", "entityq", "opentrivia")
    draw_bars([_seen(source) for source in sources], FIGURES / "contextual_seen.svg")
    draw_bars([_ids_of_a_token(source) for source in sources], FIGURES / "contextual_k.svg")
    draw_lines(_dial(), FIGURES / "gdr_dial.svg")


def _dial() -> list[Bars]:
    """Quality, time for one question and memory, from dense to generative retrieval."""
    kinds, steps = ("semantic", "codebook"), ("depth=0", "depth=1", "depth=2", "depth=3", "depth=4", "whole", "written")
    cells = {
        kind: [_read(RESULTS / "gdr" / "depth" / "mini" / f"{kind}-{step}-seed0.json") for step in steps]
        for kind in kinds
    }
    labels = [step.removeprefix("depth=") for step in steps]
    panels = [
        Bars(measure, labels, {kind: [_score(cell, "dev.nq", measure) for cell in cells[kind]] for kind in kinds})
        for measure in ("R@1", "R@100")
    ]
    panels += [Bars("ms for one question", labels, {kind: _milliseconds(kind) for kind in kinds})]
    held = {kind: [_held_at(step, cell) for step, cell in zip(steps, cells[kind], strict=True)] for kind in kinds}
    return [*panels, Bars("bytes for a document", labels, held)]


def _score(cell: dict[str, Any], split: str, measure: str) -> float:
    [scores] = cell["reports"][split]["scores"].values()
    return scores[measure]["mean"]


def _milliseconds(kind: str) -> list[float | None]:
    """The time of a search at depths 0 to 4 and with whole docids; None for `written`, which was not timed."""
    rows = [row for row in _read(HERE / "search_depth.json")["rows"] if row["system"].startswith(f"{kind}, ")]
    return [row["ms_for_one"] for row in (*rows[:5], rows[-1])] + [None]


def _held_at(step: str, cell: dict[str, Any]) -> float:
    """The bytes for a document: of vectors, if any are matched, and of the trie and docids, if any are written."""
    written = 0 if step == "depth=0" else sum(cell["memory"][part] for part in ("trie", "walk", "docids", "numbers"))
    matched = 0 if step == "written" else cell["memory"]["cluster vectors"]
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


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
