"""The table of docs/findings/study.md and the menu of its results, made from `results/`: `python -m tests.study_page`.

The text around them is written by hand; each stands between two comments. Where nothing was measured yet, the table
says so, and the menu has no entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from triever.lab.tables import PLAN, RecipeTable, read_plan
from triever.lab.verdicts import FAILS, HOLDS, MISSING, together

ROOT = Path(__file__).parent.parent
PAGE, MENU, RESULTS = ROOT / "docs" / "findings" / "study.md", ROOT / "mkdocs.yml", ROOT / "results"
SETTING = "mini"
MADE = re.compile(r"<!-- made: claims -->\n.*?<!-- end -->", re.DOTALL)
MADE_MENU = re.compile(r"( *)# made: results of the study\n.*?# end\n", re.DOTALL)
FOLDERS = {"study": "Generative against dense", "systems": "All systems"}
"""Folders of pages of results, and what the menu calls them."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the orders of a recipe that decide it, and the cells whose numbers are shown."""

    text: str
    recipe: str
    how: str
    orders: Sequence[str]
    cells: Sequence[str]
    measure: str = "Success@1"


HARD = (
    Claim(
        "3 · Hard negatives swing dense retrieval (table 1: Hit@1 52.4 without, 39.5 with one half, 47.0 with all)",
        "study/hard",
        "a share of 0 to 1 of the 8 negatives that a question meets is hard; 3,840 questions in all",
        (
            "dense, hard=0.5 < dense, hard=0.25",
            "dense, hard=0.5 < dense, hard=1.0",
            "dense, hard=1.0 < dense, hard=0.0",
        ),
        ("dense, hard=0.0", "dense, hard=0.5", "dense, hard=1.0"),
    ),
    Claim(
        "3 · Late interaction gains where dense retrieval loses (table 1: 57.5; 58.4 with a quarter, 60.0 with three)",
        "study/hard",
        "the same cells",
        ("multivector, hard=0.0 < multivector, hard=0.25", "multivector, hard=0.0 < multivector, hard=0.75"),
        ("multivector, hard=0.0", "multivector, hard=0.25", "multivector, hard=0.75"),
    ),
)
ADAPTERS = (
    Claim(
        "5 · Generative retrieval gains from new weights, dense retrieval does not (figure 3: about 5% against 1%)",
        "study/adapters",
        "adapters of .67 of the backbone's weights against none, the same training",
        (
            "codebook, no adapter < codebook, budget=0.67",
            "dense, budget=0.67 - dense, no adapter < codebook, budget=0.67 - codebook, no adapter",
        ),
        (
            *("dense, no adapter", "dense, budget=0.67"),
            *("codebook, no adapter", "codebook, budget=0.67"),
        ),
    ),
    Claim(
        "5 · Too many new weights hurt both (figure 5: all fall behind 0.4B beside 0.6B)",
        "study/adapters",
        "adapters of 1.33 against .67",
        ("codebook, budget=1.33 < codebook, budget=0.67", "dense, budget=1.33 < dense, budget=0.67"),
        ("dense, budget=1.33", "codebook, budget=1.33"),
    ),
)
CLAIMS = (
    Claim(
        "1 · More negatives help dense retrieval and late interaction, and 1,024 are not yet enough (figure 1)",
        "study/negatives",
        "8 to 1,024 random negatives, 10,240 questions in every cell",
        ("shared=8 < shared=1024", "shared=8 < shared=128", "shared=128 < shared=1024"),
        ("dense, shared=8", "dense, shared=1024", "multivector, shared=8", "multivector, shared=1024"),
    ),
    Claim(
        "2 · Larger vectors help both, up to 1,024 numbers (figure 2: over 20%)",
        "study/size",
        "32 to 1,024 numbers, 256 random negatives, as many questions",
        ("size=32 < size=1024", "size=32 < size=128", "size=128 < size=1024"),
        ("dense, size=32", "dense, size=1024", "multivector, size=32", "multivector, size=1024"),
    ),
    *HARD,
    *(
        replace(
            claim, recipe="study/hard_in_batch", how="the same beside the documents of 31 other questions, as is usual"
        )
        for claim in HARD
    ),
    Claim(
        "4 · Generative retrieval loses less as the corpus grows (table 2, NQ: Hit@1 -3.3% against -6.9%)",
        "study/growth",
        "8,500 to 60,000 documents, the same questions; rows of nodes beside dense retrieval by the same encoder",
        (
            "codebook by nodes, documents=8500 - codebook by nodes, documents=60000 "
            "< dense in its batch, documents=8500 - dense in its batch, documents=60000",
        ),
        (
            *("dense in its batch, documents=8500", "dense in its batch, documents=60000"),
            *("codebook by nodes, documents=8500", "codebook by nodes, documents=60000"),
        ),
    ),
    Claim(
        "4 · The same where codes are written symbol by symbol, at a fixed budget of training, as in the paper",
        "study/growth",
        "each document's beginning is read 8.0 times among 8,500 and 1.1 times among 60,000",
        (
            "codebook by symbols, documents=8500 - codebook by symbols, documents=60000 "
            "< dense in its batch, documents=8500 - dense in its batch, documents=60000",
        ),
        (
            *("dense in its batch, documents=8500", "dense in its batch, documents=60000"),
            *("codebook by symbols, documents=8500", "codebook by symbols, documents=60000"),
        ),
    ),
    *ADAPTERS,
    *(
        replace(
            claim,
            recipe="study/adapters_wiki",
            how=f"{claim.how}, on wiki60k with the systems of claim 4, as in the paper",
        )
        for claim in ADAPTERS
    ),
    Claim(
        "6 · A thought before the search helps (table 3: Hit@1 45.7 and 47.3)",
        "study/zero-shot",
        "24 tokens of thought before the title; the training knows no thoughts",
        (
            *("labelled < labelled, think first", "zero-shot < zero-shot, think first"),
            "labelled by LoRA < labelled by LoRA, think first",
        ),
        (
            *("labelled", "labelled, think first", "zero-shot", "zero-shot, think first"),
            *("labelled by LoRA", "labelled by LoRA, think first"),
        ),
    ),
    Claim(
        "6 · A language model finds documents without training (table 3: Hit@1 18.1 untrained, 45.7 tuned)",
        "study/zero-shot",
        "60,000 titles; an untrained model, and 200 steps on 64 questions each",
        ("zero-shot < labelled", "zero-shot < labelled by LoRA"),
        ("zero-shot", "labelled", "labelled by LoRA", "bm25"),
    ),
    Claim(
        "7 · Brier moves with the ranking: it falls with more negatives (figure 1)",
        "study/negatives",
        "the cells of claim 1; a softmax over all documents at the temperature of the training",
        ("Brier: shared=1024 < shared=8", "Brier: shared=1024 < shared=128"),
        ("dense, shared=8", "dense, shared=1024", "multivector, shared=8", "multivector, shared=1024"),
        "Brier",
    ),
    Claim(
        "7 · Brier moves with the ranking: it falls with larger vectors (figure 2)",
        "study/size",
        "the cells of claim 2",
        ("Brier: size=1024 < size=32",),
        ("dense, size=32", "dense, size=1024", "multivector, size=32", "multivector, size=1024"),
        "Brier",
    ),
    Claim(
        "Section 5 · Dropped prefixes taken up again, or free writing that is mapped, undo early mistakes (not tried)",
        "study/decoding",
        "one trained model of each kind, searched in ten ways",
        ("beam < beam and 10 taken up again <= beam and 40 taken up again", "beam < mapped"),
        (
            *("codebook, beam", "codebook, beam and 40 taken up again", "codebook, mapped"),
            *("titles, beam", "titles, beam and 40 taken up again", "titles, mapped"),
        ),
        "Success@10",
    ),
)
TO_BE_RUN = "to be run"


def table(results: Path = RESULTS) -> str:
    """A row for each claim: how it is tested, and what came out."""
    head = ("claim (and where the paper has it)", "tested by", "result")
    measured = {recipe: table_of(results / recipe / SETTING) for recipe in {claim.recipe for claim in CLAIMS}}
    rows = [(claim.text, f"`{claim.recipe}`: {claim.how}", result(claim, measured[claim.recipe])) for claim in CLAIMS]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def table_of(folder: Path) -> RecipeTable | None:
    """The table of a recipe that has results."""
    return RecipeTable.of(read_plan(folder), folder) if (folder / PLAN).exists() else None


def result(claim: Claim, measured: RecipeTable | None) -> str:
    """What was measured for a claim, and the verdict."""
    if measured is None:
        return TO_BE_RUN
    split = measured.plan["split"]
    numbers = {row.cell: row.measured(split, claim.measure) for row in measured.rows if row.results}
    few = {
        row.cell: f" ({len(row.results)} of {row.planned} seeds)"
        for row in measured.rows
        if len(row.results) < row.planned
    }
    shown = [f"{cell} {numbers[cell]}{few.get(cell, '')}" for cell in claim.cells if numbers.get(cell)]
    if not shown:
        return TO_BE_RUN
    by_order = {line["order"]: line["verdict"] for line in measured.verdicts}
    verdicts = [by_order[order] for order in claim.orders]
    link = f"[all numbers](../results/{claim.recipe}.md)"
    return f"**{told(verdicts)}**. {claim.measure}: {'; '.join(shown)} ({link})"


def told(verdicts: Sequence[str]) -> str:
    """One verdict in words, and how many orders it rests on.

    >>> told(["holds"]), told(["holds", "cannot be told"]), told(["holds", "not measured"])
    ('holds', 'cannot be told (holds in 1 of 2 orders)', 'in part to be run (holds in 1 of 2 orders)')
    """
    whole = together(verdicts)
    words = {MISSING: f"in part {TO_BE_RUN}"}.get(whole, whole)
    if whole == HOLDS or (whole == FAILS and set(verdicts) == {FAILS}):
        return words
    return f"{words} (holds in {verdicts.count(HOLDS)} of {len(verdicts)} orders)"


def render(page: str, results: Path = RESULTS) -> str:
    """The page with its table made anew."""
    made = f"<!-- made: claims -->\n\n{table(results)}\n\n<!-- end -->"
    text, count = MADE.subn(lambda _match: made, page)
    assert count == 1, f"{count} tables of claims"
    return text


def menu(text: str, docs: Path = ROOT / "docs") -> str:
    """The settings of the site, with an entry for each page of results of the study that there is."""

    def entries(match: re.Match[str]) -> str:
        space, lines = match[1], ["# made: results of the study"]
        for folder, title in FOLDERS.items():
            pages = sorted((docs / "results" / folder).glob("*.md"))
            lines += [f"- {title}:"] if pages else []
            lines += [f"    - {page.stem}: results/{folder}/{page.name}" for page in pages]
        return "".join(f"{space}{line}\n" for line in (*lines, "# end"))

    made, count = MADE_MENU.subn(entries, text)
    assert count == 1, f"{count} places for results of the study"
    return made


def main() -> None:
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    MENU.write_text(menu(MENU.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
