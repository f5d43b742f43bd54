"""Rows of nodes searched in fixed shapes against the search step by step: the same documents and probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from triever import (
    Atomic,
    Codebook,
    Dataset,
    DecoderOptions,
    DocidTuning,
    Document,
    Generative,
    SearchOptions,
    Semantic,
)
from triever.docids.schemes import Scheme
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.engines.node_docids import Rows
from triever.engines.node_search import Found, NodeSearch
from triever.engines.nodes import NodeEngine
from triever.engines.steady_nodes import QueryReader, SteadyNodes, can_be_steady
from triever.index.vectors import Vectors
from triever.models.node_rows import NodeGenerator, NodeSums, Steering

SIZE, SCALE = 6, 5.0
QUERIES = ["a", "bc", "def", "ghij", "klmno"]
chosen = st.builds(
    SearchOptions,
    method=st.sampled_from(["beam", "beam", "exact"]),
    width=st.sampled_from([1, 2, 3, 50]),
    normalisation=st.just("documents"),
    temperature=st.sampled_from([1.0, 0.5]),
)
NARROW = SearchOptions(width=1, normalisation="documents")
symbols = st.lists(st.integers(0, 3), min_size=1, max_size=3)
passages = st.lists(st.tuples(symbols, st.integers(0, 5), st.booleans()), min_size=2, max_size=24)


def vectors_of(ids: Tensor, _mask: Tensor) -> Tensor:
    seeds = (torch.Generator().manual_seed(int(number)) for number in ids[:, 0])
    return torch.stack([torch.randn(SIZE, generator=seed) for seed in seeds])


def tokenise(queries: Sequence[str]) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([[len(query)] for query in queries])
    return ids, torch.ones_like(ids)


def searching(
    listed: list[tuple[list[int], int, bool]], numbered: bool, stops: int | None, options: SearchOptions, device: str
) -> NodeSearch | None:
    """Passages with these docids, documents and whether they are deleted afterwards; None if all are."""
    listed = sorted(listed, key=lambda passage: passage[1])
    docids = [(*docid, *((10 + at,) if numbered else (9,))) for at, (docid, _, _) in enumerate(listed)]
    gone = np.array([is_gone for *_, is_gone in listed])
    if gone.all():
        return None
    numbers, chance = np.arange(len(listed)), np.random.default_rng(len(listed))
    row = chance.standard_normal((len(listed), SIZE)).astype(np.float16)
    mass = chance.choice(np.array([1.0, 0.25], np.float32), len(listed))
    owners = np.unique(np.array([owner for _, owner, _ in listed])[~gone], return_inverse=True)[1]
    rows = Rows(row[~gone], owners, numbers[~gone], mass[~gone])
    trie = Trie.of(zip(docids, numbers.tolist(), strict=True)).without(numbers[gone].tolist())
    sums = []
    for part, alive in zip(trie.parts, trie.alive, strict=True):
        of_entries = torch.from_numpy(row[part.document].astype(np.float32)), torch.from_numpy(mass[part.document])
        sums.append(NodeSums.of(part, *(tensor.to(device) for tensor in of_entries), alive))
    walk = Walk(trie, device)

    def read(queries: Sequence[str]) -> Tensor:
        return vectors_of(*tokenise(queries)).to(device)

    generator = NodeGenerator(read, walk, sums, SCALE, Steering(), 40, options.temperature)
    return NodeSearch(rows, Vectors(rows.row, torch.device(device)), generator, options, stops)


def best(search: NodeSearch, found: Found, k: int) -> tuple[list[int], list[float], list[list[int]]]:
    """The k best documents, their log-probabilities, and their passages."""
    owners = search.rows.owners[found.positions]
    masses = {
        owner: float(np.logaddexp.reduce(found.logprobs[owners == owner])) for owner in np.unique(owners).tolist()
    }
    order = sorted(masses, key=lambda owner: (-masses[owner], owner))[:k]
    return order, [masses[owner] for owner in order], [sorted(found.positions[owners == owner]) for owner in order]


def same(search: NodeSearch, found: Sequence[Found], expected: Sequence[Found], k: int) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        documents, masses, positions = best(search, ours, k)
        wanted, true_masses, true_positions = best(search, theirs, k)
        assert documents == wanted
        assert masses == pytest.approx(true_masses, abs=1e-4)
        assert positions == true_positions


@example([([0], 0, False), ([1], 0, False), ([0], 0, True)], False, 1, NARROW, 1)  # where the last one is deleted
@given(passages, st.booleans(), st.sampled_from([None, 0, 1, 2, 3]), chosen, st.integers(1, 5))
def test_fixed_shapes_find_what_a_search_step_by_step_finds(
    listed: list[tuple[list[int], int, bool]], numbered: bool, stops: int | None, options: SearchOptions, k: int
) -> None:
    search = searching(listed, numbered, stops, options, "cpu")
    if search is None or not can_be_steady(search):
        return
    steady = SteadyNodes(search, QueryReader(tokenise, vectors_of, 0))
    same(search, steady.search(QUERIES, k), search.search(QUERIES, k), k)


NAMES = [f"{kind}.{verb}" for kind in ("json", "pickle", "csv", "zip") for verb in ("dump", "load", "open", "read")]
DOCUMENTS = [Document(name, f"How to {name}. It says {name[::-1]} twice.", name.replace(".", " ")) for name in NAMES]
ASKED = ["load a csv file", "zip", "how to open a pickle that was dumped"]


def fitted(docids: Scheme, **how: object) -> tuple[NodeEngine, Generative]:
    small = {"backbone": "scratch:hidden=32,layers=1,heads=2,vocabulary=300", "training": DocidTuning(steps=0)}
    options = SearchOptions(record=True, **how)  # ty: ignore[invalid-argument-type]
    retriever = Generative(docids=docids, decoder=DecoderOptions(rows="nodes"), search_options=options, **small)
    retriever.fit(Dataset.of("functions", DOCUMENTS))
    assert isinstance(retriever.engine, NodeEngine)
    return retriever.engine, retriever


@pytest.mark.parametrize("docids", [Semantic(branch=2, leaf=2), Codebook(levels=2, bits=2), Atomic()])
@pytest.mark.parametrize("how", [{"width": 3}, {"method": "exact"}], ids=["beam", "exact"])
def test_engines_find_the_same(docids: Scheme, how: dict[str, object]) -> None:
    engine, _ = fitted(docids, **how)
    steady, plain = engine.made_steady(), engine.made_steady()
    assert steady is not None
    assert plain is not None
    same(plain.plain, steady.search(ASKED, 4), plain.plain.search(ASKED, 4), 4)


def test_equal_documents_are_left_to_the_search_step_by_step() -> None:
    listed = [([0], 0, False), ([1], 1, False), ([1], 2, False)]
    search = searching(listed, True, None, SearchOptions(method="exact", normalisation="documents"), "cpu")
    assert search is not None
    search.rows.row[:], search.rows.mass[:] = search.rows.row[:1], 1.0
    steady = SteadyNodes(search, QueryReader(tokenise, vectors_of, 0))
    [found] = steady.search(QUERIES[:1], 1)
    assert sorted(found.positions) == [0, 1, 2]
    assert steady.again == 1


def test_what_was_added_is_searched_step_by_step() -> None:
    engine, retriever = fitted(Semantic(branch=2, leaf=2), width=3)
    assert engine.made_steady() is not None
    retriever.add([Document("tar.open", "How to open a tar file.", "tar open")])
    assert isinstance(retriever.engine, NodeEngine)
    assert retriever.engine.made_steady() is None


@pytest.mark.slow
@pytest.mark.parametrize("stops", [None, 2])
def test_a_gpu_replays_what_it_has_recorded(stops: int | None) -> None:
    listed = [([at % 3, at % 5, at % 7], at // 2, False) for at in range(60)]
    options = SearchOptions(width=3, normalisation="documents")
    search = searching(listed, True, stops, options, "cuda")
    assert search is not None
    known = torch.randn(64, SIZE, device="cuda")
    search = NodeSearch(search.rows, search.vectors, search.generator, search.options, search.stops)
    search.generator.read = lambda queries: known[tokenise(queries)[0][:, 0].cuda()]
    steady = SteadyNodes(search, QueryReader(tokenise, lambda ids, _mask: known[ids[:, 0]], 0))
    for queries in (["a", "bc", "def", "g"], ["hijk", "l", "mn", "o"], ["a" * 50, "bcd", "ef", "gh"]):
        same(search, steady.search(queries, 3), search.search(queries, 3), 3)
    assert len(steady.recorded) >= 1
    assert not steady.recorded.broken
