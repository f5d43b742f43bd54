"""Results as the pages of a site: an index, and a page for each recipe and each folder of other results."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from triever.arguments import as_path
from triever.evaluation.picture import draw_lines
from triever.files import atomic
from triever.lab.origin import shown
from triever.lab.results import Section, sections
from triever.lab.tables import RecipeTable
from triever.lab.verdicts import FAILS, HOLDS, MISSING, OPEN

INDEX = "results.md"
PAGES = "results"
"""The folder of the pages, beside the index."""

RECIPES = """## Recipes

Run one with `triever experiment NAME --setting SETTING` ([how recipes work](experiments.md)). A recipe expects orders,
such as `dense < fused`. The last column counts the verdicts; an order cannot be told where the intervals overlap."""

COSTS = """## All systems

What each system finds, how sure it is of it (`Brier`, where lower is better), and what it costs."""

OTHERS = """## Comparisons and analyses

Each result has its command beside it."""


def pages(folder: str | Path, out: str | Path = "docs") -> dict[str, str]:
    """The texts of all pages by their paths below `out`: `results.md`, the index, and `results/NAME.md`."""
    return _texts(sections(folder), _header(folder, out))


def _header(folder: str | Path, out: str | Path) -> str:
    command = shlex.join(["triever", "results", shown(folder), "--pages", shown(out)])
    return f"""# Results

Every number on these pages is made from a file in `{shown(folder)}/` by `{command}`. Each file holds
the values, their 95% intervals, the command, the data's fingerprint and the machine."""


def _texts(made: Iterable[Section], header: str) -> dict[str, str]:
    grouped: dict[str, list[Section]] = {}
    for section in made:
        grouped.setdefault(section.page, []).append(section)
    texts = {_path(name): _page(name, group) for name, group in grouped.items()}
    return {INDEX: _index(grouped, header), **texts}


def write_pages(folder: str | Path, out: str | Path) -> list[Path]:
    """Write all pages and their pictures below `out`, and return the paths of the pages, that of the index first."""
    made, paths = sections(folder), []
    for section in made:
        if section.table and section.picture:
            draw_lines(section.table.panels(), (as_path(out) / _path(section.page)).with_name(section.picture))
    for name, text in _texts(made, _header(folder, out)).items():
        path = as_path(out) / name
        with atomic(path) as file:
            file.write(text.encode())
        paths.append(path)
    return paths


def _path(name: str) -> str:
    return f"{PAGES}/{name}.md"


def _page(name: str, group: Iterable[Section]) -> str:
    return "\n\n".join([f"# Results: {name}", *(section.markdown(pictures=True) for section in group)]) + "\n"


def _index(grouped: Mapping[str, Sequence[Section]], header: str) -> str:
    recipes = [_recipe_row(section) for group in grouped.values() for section in group if section.table]
    other_pages = [
        _other_row(name, rest) for name, group in grouped.items() if (rest := [s for s in group if not s.table])
    ]
    recipe_head, other_head = (
        ("recipe", "setting", "question", "runs", "expected orders"),
        ("page", "made by", "results"),
    )
    parts = [header]
    costs = overview(section for group in grouped.values() for section in group)
    parts += [f"{COSTS}\n\n{costs}"] if costs else []
    parts += [f"{RECIPES}\n\n{_table(recipe_head, recipes)}"] if recipes else []
    parts += [f"{OTHERS}\n\n{_table(other_head, other_pages)}"] if other_pages else []
    return "\n\n".join(parts) + "\n"


def overview(made: Iterable[Section]) -> str:
    """The tables of systems with what they cost, of all recipes that ask for it; "" if none has results."""
    return "\n\n".join(costs for section in made if section.table and (costs := section.table.costs()))


def _recipe_row(section: Section) -> list[str]:
    table = section.table
    assert table is not None
    runs = str(sum(len(row.results) for row in table.rows))
    more = f" + {section.unlisted} not listed" if section.unlisted else ""
    setting = "all" if table.plan.get("as_it_stands") else table.plan["setting"]
    return [_link(section.page), setting, table.plan["title"], runs + more, _counted(table)]


def _counted(table: RecipeTable) -> str:
    """How many of the expected orders hold, and how many do not: "holds 3, cannot be told 1"."""
    counts = Counter(line["verdict"] for line in table.verdicts)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in (HOLDS, FAILS, OPEN, MISSING) if counts[verdict])


def _other_row(name: str, group: Sequence[Section]) -> list[str]:
    commands = ", ".join(f"`{words}`" for words in dict.fromkeys(section.made_by for section in group))
    return [_link(name), commands, ", ".join(section.title.rpartition("/")[2] for section in group)]


def _link(name: str) -> str:
    return f"[{name}]({_path(name)})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
