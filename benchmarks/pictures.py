"""Pictures of the documentation, drawn from what was measured: `make pages`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from triever.evaluation.finding import Bars
from triever.evaluation.picture import draw_bars, draw_points

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


def _seen(source: str) -> Bars:
    """Means over seeds of what is found of documents that training questions were about, and of others."""
    files = sorted((RESULTS / "contextual" / "seen").glob(f"{source}-seed*.json"))
    found = [_read(file)["finding"]["values"] for file in files]
    groups = ("seen", "unseen")
    labels = [f"{group} ({found[0]['questions'][group]:,})" for group in groups]
    series = {
        name: [mean(one["scores"][name][group]["mean"] for one in found) for group in groups]
        for name in found[0]["scores"]
    }
    return Bars(f"{source}: R-precision", labels, series)


def _ids_of_a_token(source: str) -> Bars:
    """Figure 5 of the paper: what more ids for each token of titles are worth, of one seed."""
    cells = {0: "GENRE", 5: "Base"} | {k: f"k={k}" for k in (1, 2, 3, 10, 20)}
    folder = RESULTS / "contextual" / "variants" / "mini"
    found = []
    for k in sorted(cells):
        [scores] = _read(folder / f"{cells[k]}-seed0.json")["reports"][f"dev.{source}"]["scores"].values()
        found.append(scores["Rprec"]["mean"])
    return Bars(f"{source}: R-precision", [f"k={k}" for k in sorted(cells)], {"ids of a token": found})


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
