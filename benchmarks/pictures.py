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
    sources = ("nq", "entityq", "opentrivia")
    draw_bars([_seen(source) for source in sources], FIGURES / "contextual_seen.svg")


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


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
