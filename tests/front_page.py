"""The tables of results in README.md and docs/index.md, made from `results/`: `python -m tests.front_page`.

The text around them is written by hand; they stand between two comments. What systems cost is there once a recipe below
`systems` has results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from triever.lab.pages import overview
from triever.lab.results import sections
from triever.lab.tables import PLAN

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
MARKED = re.compile(r"<!-- made: results -->\n.*?<!-- end -->", re.DOTALL)
SQUAD, NQ, ENTITIES = "squad-partial docseen_dev", "wiki60k dev.nq", "wiki60k dev.entityq"
SYSTEMS = ROOT / "results" / "systems"
COSTLY = """One training of each system (`triever experiment systems/squad --setting mini`, and `systems/wiki`), with
how sure it is of what it finds (`Brier`, where lower is better) and what it costs:"""
OTHERS = """Success@1 of other trainings, each by a recipe of its own. On wiki60k these have learned the questions of
nq, entityq and opentrivia at once, but for what is marked:"""
ALONE = "\\*"
"""Behind a number: the system was trained on the questions of nq alone."""


def table() -> str:
    rows = [
        {"system": "BM25", **compared("bm25", "bm25")},
        {"system": "BM25 + doc2query", SQUAD: cell("scaling/views", "bm25-+-doc2query", "docseen_dev")},
        {
            "system": "generative, atomic docids that begin as dense vectors",
            SQUAD: cell("scaling/views", "best-from-a-tuned-encoder", "docseen_dev"),
            NQ: cell("gdr/growth", "documents=60000-DSI-atomic", "dev.nq") + ALONE,
        },
        {"system": "titles in the plain vocabulary (GENRE)", **titles("GENRE")},
        {"system": "titles in a contextual vocabulary (CGR)", **titles("Base")},
        {
            "system": f"clusters written, vectors matched inside (GDR), {share('gdr/squad', 'GDR')} and "
            f"{share('gdr/growth', 'documents=60000-GDR-fine-by-500')} of the vectors compared",
            SQUAD: cell("gdr/squad", "GDR", "docseen_dev"),
            NQ: cell("gdr/growth", "documents=60000-GDR-fine-by-500", "dev.nq") + ALONE,
        },
        {"system": "dense, tuned", **compared("encoders", "dense tuned")},
        {"system": "late interaction, tuned", **compared("encoders", "multivector")},
        {"system": "fused: BM25, late interaction, reranked", **compared("encoders", "fused with reranked")},
    ]
    columns = ("system", SQUAD, NQ, ENTITIES)
    lines = [columns, ["---"] * len(columns), *([row.get(column, "") for column in columns] for row in rows)]
    alone = cell("gdr/growth", "documents=60000-dense", "dev.nq")
    note = f"{ALONE} Trained on the questions of nq alone. Dense retrieval that is trained the same way finds {alone}."
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{note}"


def compared(folder: str, system: str) -> dict[str, str]:
    """Success@1 of one system in the comparisons of a folder, by data and split."""
    files = {column: _seeds(folder, column.replace(" ", "-")) for column in (SQUAD, NQ, ENTITIES)}
    return {
        column: _text([_read(file)["report"]["scores"][system]["Success@1"] for file in seeds])
        for column, seeds in files.items()
    }


def titles(stem: str) -> dict[str, str]:
    """R-precision of a cell of contextual/variants: Success@1, as each of these questions has one relevant document."""
    splits = {NQ: "dev.nq", ENTITIES: "dev.entityq"}
    return {column: cell("contextual/variants", stem, split, "Rprec") for column, split in splits.items()}


def cell(recipe: str, stem: str, split: str, measure: str = "Success@1") -> str:
    """The mean of a measure over the seeds of one cell of a recipe."""
    scores = []
    for file in _seeds(f"{recipe}/mini", stem):
        [by_measure] = _read(file)["reports"][split]["scores"].values()
        scores.append(by_measure[measure])
    return _text(scores)


def share(recipe: str, stem: str) -> str:
    """With how many of all vectors a query is compared."""
    return f"{fmean(_read(file)['compared'] for file in _seeds(f'{recipe}/mini', stem)):.0%}"


def _seeds(folder: str, stem: str) -> list[Path]:
    seeds = sorted((ROOT / "results" / folder).glob(f"{stem}-seed?.json"))
    return seeds or [ROOT / "results" / folder / f"{stem}.json"]


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_bytes())


def _text(scores: list[Mapping[str, float]]) -> str:
    return f"{fmean(score['mean'] for score in scores):.3f}".lstrip("0")


def costs(folder: Path = SYSTEMS) -> str:
    """What every system finds and what it costs, a table for each corpus; "" as long as nothing was measured."""
    return overview(sections(folder)) if any(folder.rglob(PLAN)) else ""


def render(page: str, systems: Path = SYSTEMS) -> str:
    """The page with its tables made anew."""
    costly = costs(systems)
    tables = [f"{COSTLY}\n\n{costly}", f"{OTHERS}\n\n{table()}"] if costly else [table()]
    made = "\n\n".join(["<!-- made: results -->", *tables, "<!-- end -->"])
    text, count = MARKED.subn(lambda _match: made, page)
    assert count == 1, f"{count} tables of results"
    return text


def main() -> None:
    for page in PAGES:
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
