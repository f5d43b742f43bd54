"""The page docs/architecture.md: its pictures are those of the code as it is, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import architecture_page
from tests.architecture_page import BOX, FIGURES, WAYS, draw, folder_imports, kept, layers, places

WIDEST = 7.6
"""Of a letter of 14 pixels on average, in a wide font."""


@pytest.mark.parametrize("name", WAYS)
def test_a_picture_is_drawn_from_the_imports(name: str) -> None:
    assert (FIGURES / f"{name}.svg").read_text(encoding="utf-8") == draw(WAYS[name]), "run: make pages"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_arrow_is_an_import_and_every_import_is_told(way: architecture_page.Way) -> None:
    graph, drawn = folder_imports(), kept(folder_imports(), way.folders)
    for name, others in drawn.items():
        assert others <= graph[name]
        below = set().union(*(architecture_page.below(drawn, other) | {other} for other in others))
        assert graph[name] & way.folders.keys() <= below, "what is not drawn follows from what is"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_boxes_lie_apart_and_hold_their_texts(way: architecture_page.Way) -> None:
    where = places(kept(folder_imports(), way.folders))
    for name, (_, text) in way.folders.items():
        assert 46 + WIDEST * len(text) < BOX, text
        [place] = where[name]
        beside = [other for one in where.values() for other in one if other.row == place.row and other is not place]
        assert all(abs(other.x - place.x) > BOX / 2 for other in beside)
        assert BOX / 2 < place.x < architecture_page.WIDTH - BOX / 2
    steps = {step for step, _ in way.folders.values()}
    assert steps == set(range(1, max(steps) + 1))
    assert ElementTree.fromstring(draw(way)).tag.endswith("svg")


def test_what_follows_is_left_out_and_layers_go_down() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert kept(graph, graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    assert layers(kept(graph, graph)) == [["a"], ["b"], ["c", "e"], ["d"]]
    assert kept(graph, ["a", "c", "d"]) == {"a": {"c"}, "c": {"d"}, "d": set()}
    long = places({"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()})
    assert [place.row for place in long["a", "d"]] == [1, 2]


def test_files_that_pages_for_authors_name_exist(root: Path) -> None:
    for page in ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"):
        text = (root / page).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:src|tests|recipes|docs|benchmarks)/[\w./-]+)`", text):
            assert (root / path).exists(), f"{page} names {path}"
