"""Pictures of the documentation, drawn from what benchmarks have measured: `make pages`."""

from __future__ import annotations

import json
from pathlib import Path

from triever.evaluation.picture import draw_points

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"


def main() -> None:
    rows = json.loads((HERE / "search_docids.json").read_text(encoding="utf-8"))["rows"]
    draw_points(rows, "queries_per_second", ("Success@10", "agreement"), FIGURES / "search_docids.svg")


if __name__ == "__main__":
    main()
