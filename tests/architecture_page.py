"""The pictures of docs/architecture.md, drawn from the imports of the code: `python -m tests.architecture_page`.

A picture has the folders on the way of a query or of a training. A folder stands above all that it imports. An arrow
is drawn where one imports another, unless that follows from other arrows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.test_imports import FILES, SOURCE, imported, module_name

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
DOOR = "import triever"
"""The front door, which is the file `__init__.py` and no folder."""

Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Way:
    """What a picture shows: folders, at which step each is passed, and what it does there."""

    title: str
    folders: Mapping[str, tuple[int, str]]


WAYS = {
    "architecture_query": Way(
        "The way of a query through the folders, from the command line or Python to hits. An arrow is an import.",
        {
            "cli": (1, "finds the command in its table"),
            "commands": (2, "reads the words of triever search"),
            DOOR: (1, "triever.load(path).search(query)"),
            "retriever": (4, "checks the query, holds one state"),
            "engines": (5, "what was learned; documents by their rows"),
            "search": (7, "writes docids: beam or exact search"),
            "index": (7, "compares vectors: all, graph or codes"),
            "models": (6, "read the query, score the next symbol"),
            "docids": (8, "the trie knows which docids exist"),
            "data": (9, "the store turns rows into hits"),
            "artifact": (3, "opens the saved folder and checks it"),
        },
    ),
    "architecture_training": Way(
        "The way of a training through the folders, from a dataset to an artifact. An arrow is an import.",
        {
            "commands": (1, "reads the words of triever fit"),
            DOOR: (1, "triever.Generative(...).fit(dataset)"),
            "retrievers": (3, "learn: options and data to an engine"),
            "learning": (5, "teaches: docid model, or encoder"),
            "retriever": (3, "the contract: fit, search, add, save"),
            "engines": (9, "what searches from now on"),
            "training": (8, "the loop: batches, losses, checkpoints"),
            "models": (7, "what is trained: docid model, encoder"),
            "docids": (6, "a docid for every document"),
            "data": (2, "the dataset: documents, queries, qrels"),
            "work_folder": (4, "unfinished work, to go on from"),
            "artifact": (10, "the saved folder, whole or not at all"),
        },
    ),
}

# --- imports --------------------------------------------------------------------------------------------------


def folder_imports() -> dict[str, set[str]]:
    """What each folder of the source imports, and what the front door does; files beside folders count as folders."""
    graph: dict[str, set[str]] = {}
    for path in [*FILES, SOURCE / "__init__.py"]:
        here = module_name(path).partition(".")[0]
        names = {name.partition(".")[0] for name in imported(path.read_text(encoding="utf-8"))}
        graph.setdefault(DOOR if path.parent == SOURCE and path.stem == "__init__" else here, set()).update(names)
    return {folder: names - {folder} for folder, names in graph.items()}


def kept(graph: Graph, folders: Iterable[str]) -> dict[str, set[str]]:
    """The imports among some folders, without those that follow from others."""
    names = list(folders)
    among = {name: graph[name] & set(names) for name in names}
    return {name: among[name] - set().union(*(below(among, other) for other in among[name])) for name in names}


def below(graph: Graph, name: str) -> set[str]:
    """All that a folder imports, and what that imports."""
    return set(graph[name]).union(*(below(graph, other) for other in graph[name]))


def layers(graph: Graph) -> list[list[str]]:
    """Folders from top to bottom: each stands one row above the highest of those that it imports."""

    def height(name: str) -> int:
        return 1 + max(map(height, graph[name]), default=-1)

    top = max(map(height, graph))
    return [[name for name in graph if height(name) == top - row] for row in range(top + 1)]


# --- drawing --------------------------------------------------------------------------------------------------

WIDTH, MARGIN = 880, 26
BOX, TALL = 380, 58
GAP, STEP = 40, 100
"""Between the boxes of a row, and from row to row."""
LANE = 60
"""What an arrow takes that passes a row."""
STYLE = (
    "<style>.box{fill:#fff;stroke:#90a4ae}.name{font-weight:600;font-size:17px;fill:#004d40}"
    ".text{font-size:14px;fill:#263238}.arrow{fill:none;stroke:#00796b;stroke-width:2}"
    ".badge{fill:#00796b}.number{font-size:13px;font-weight:600;fill:#fff}</style>"
)
HEAD = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="#00796b"/></marker>'
)


@dataclass(frozen=True)
class Place:
    """The middle of a box, or of the lane of an arrow that passes its row."""

    x: float
    row: int

    @property
    def top(self) -> float:
        return MARGIN + self.row * STEP

    @property
    def bottom(self) -> float:
        return self.top + TALL


Lane = tuple[str, str]


def places(graph: Graph) -> dict[str | Lane, list[Place]]:
    """Where each box is, and through which lanes an arrow goes that passes rows."""
    rows = layers(graph)
    row_of = {name: row for row, names in enumerate(rows) for name in names}
    found: dict[str | Lane, list[Place]] = {}
    for row, names in enumerate(rows):
        passing = [(a, b) for a in graph for b in sorted(graph[a]) if row_of[a] < row < row_of[b]]
        items: list[str | Lane] = [*names, *passing]
        widths = [BOX if isinstance(item, str) else LANE for item in items]
        left = (WIDTH - sum(widths) - GAP * (len(items) - 1)) / 2
        for item, width in zip(items, widths, strict=True):
            found.setdefault(item, []).append(Place(left + width / 2, row))
            left += width + GAP
    return found


def draw(way: Way) -> str:
    """The picture as SVG."""
    graph = kept(folder_imports(), way.folders)
    where = places(graph)
    height = 2 * MARGIN + (len(layers(graph)) - 1) * STEP + TALL
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title" '
        "font-family=\"system-ui, 'DejaVu Sans', sans-serif\">",
        f'<title id="title">{escape(way.title)}</title>',
        f"<defs>{HEAD}</defs>{STYLE}",
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="14" fill="#fafcfc" stroke="#cfd8dc"/>',
        *(_arrow(where, a, b) for a in graph for b in sorted(graph[a])),
        *(_box(where[name][0], name, text, step) for name, (step, text) in way.folders.items()),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _arrow(where: Mapping[str | Lane, Sequence[Place]], a: str, b: str) -> str:
    """From the bottom of a box to the top of another, straight down through the lanes between."""
    start, end = where[a][0], where[b][0]
    points = [(_towards(start.x, end.x, where.get((a, b))), start.bottom)]
    for lane in where.get((a, b), ()):
        points += [(lane.x, lane.top - (STEP - TALL) / 4), (lane.x, lane.bottom + (STEP - TALL) / 4)]
    points.append((_towards(end.x, points[-1][0], None), end.top - 1))
    path = "L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path class="arrow" d="M{path}" marker-end="url(#head)"/>'


def _towards(middle: float, other: float, lanes: Sequence[Place] | None) -> float:
    """Where an arrow leaves or meets a box: as near to its other end as the box allows, so that arrows lie apart."""
    target = lanes[0].x if lanes else other
    return min(max(target, middle - BOX / 4), middle + BOX / 4)


def _box(place: Place, name: str, text: str, step: int) -> str:
    left = place.x - BOX / 2
    label = name if name == DOOR else f"{name}/" if (SOURCE / name).is_dir() else f"{name}.py"
    return (
        f'<rect class="box" x="{left:g}" y="{place.top}" width="{BOX}" height="{TALL}" rx="10"/>'
        f'<circle class="badge" cx="{left + 24:g}" cy="{place.top + TALL / 2:g}" r="12"/>'
        f'<text class="number" x="{left + 24:g}" y="{place.top + TALL / 2 + 4.5:g}" text-anchor="middle">{step}</text>'
        f'<text class="name" x="{left + 46:g}" y="{place.top + 24}">{escape(label)}</text>'
        f'<text class="text" x="{left + 46:g}" y="{place.top + 45}">{escape(text)}</text>'
    )


def main() -> None:
    for name, way in WAYS.items():
        (FIGURES / f"{name}.svg").write_text(draw(way), encoding="utf-8")


if __name__ == "__main__":
    main()
