"""The search in fixed shapes against the plain one: the same documents, whatever the trie and the model."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.toy import Pair, Toy
from triever import (
    GDR,
    Cluster,
    Codebook,
    Contextual,
    Dataset,
    DecoderOptions,
    DocidTuning,
    Document,
    Generative,
    Naive,
    Retriever,
    SearchOptions,
    Semantic,
    Title,
)
from triever.docids.schemes import Scheme
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.docid_model import Tokenise
from triever.models.even_decoder import EvenSeq2SeqGenerator
from triever.models.fused_decoder import PLACES, FusedGenerator, can_fuse
from triever.models.t5 import T5, T5Shape
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.search.recorded import Recorded
from triever.search.steady_beam import Room, measured_beam, steady_beam
from triever.search.steady_search import SteadySearch

STOP = 5
QUERIES = ["first", "second", "third"]
docids = st.lists(st.integers(0, STOP - 1), max_size=4).map(lambda symbols: (*symbols, STOP))
pairs = st.lists(st.tuples(docids, st.integers(0, 9)), min_size=1, max_size=25, unique=True)
options = st.builds(
    BeamOptions,
    width=st.integers(1, 12),
    normalisation=st.sampled_from(["trie", "vocabulary"]),
    temperature=st.sampled_from([1.0, 0.7]),
    length_penalty=st.sampled_from([0.0, 0.0, 1.0]),
    finish=st.booleans(),
)
Found = list[list[tuple[int, float]]]


class AllScoringToy(Toy):
    """One whose children are scored among all symbols, as those of most models are."""

    def scores_all(self, candidates: int) -> bool:
        return True


def same(found: Found, expected: Found, tolerance: float = 1e-5) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [document for document, _ in ours] == [document for document, _ in theirs]
        assert [mass for _, mass in ours] == pytest.approx([mass for _, mass in theirs], abs=tolerance)


def changed(listed: list[Pair], added: list[Pair], gone: set[int]) -> Walk:
    return Walk(Trie.of(listed).with_added([pair for pair in added if pair not in listed]).without(gone))


@given(pairs, pairs | st.just([]), st.sets(st.integers(0, 9), max_size=3), options, st.integers(1, 8), st.booleans())
def test_fixed_shapes_find_what_the_plain_beam_finds(
    listed: list[Pair], added: list[Pair], gone: set[int], how: BeamOptions, k: int, scores_all: bool
) -> None:
    walk, toy = changed(listed, added, gone), (AllScoringToy if scores_all else Toy)(STOP + 1)
    expected = documents(walk, beam(toy, *toy.prefill(QUERIES), walk, how, keep=k), k, ties=True)
    measured, plan = measured_beam(toy, *toy.prefill(QUERIES), walk, how, k)
    same(documents(walk, measured.frontier, k, ties=True), expected)
    planned = steady_beam(toy, *toy.prefill(QUERIES), walk, how, plan, k)
    assert planned.fits(plan)
    same(documents(walk, planned.frontier, k, ties=True), expected)


@given(pairs, st.sets(st.integers(0, 9), max_size=3), options, st.integers(0, 6))
def test_to_a_depth_they_find_the_same_prefixes(
    listed: list[Pair], gone: set[int], how: BeamOptions, depth: int
) -> None:
    walk, toy, how = changed(listed, [], gone), Toy(STOP + 1), replace(how, finish=False, length_penalty=0.0)
    expected = beam(toy, *toy.prefill(QUERIES), walk, how, depth=depth)
    measured, plan = measured_beam(toy, *toy.prefill(QUERIES), walk, how, depth=depth)
    planned = steady_beam(toy, *toy.prefill(QUERIES), walk, how, plan, depth=depth)
    for found in (measured.frontier, planned.frontier):
        width = expected.logprob.shape[1]
        torch.testing.assert_close(found.logprob[:, :width], expected.logprob, atol=1e-5, rtol=0)
        assert not found.logprob[:, width:].isfinite().any()
        there = expected.logprob.isfinite()
        assert torch.equal(found.state[:, :width][there], expected.state[there])


def test_a_plan_with_too_little_room_says_so() -> None:
    walk, toy = Walk(Trie.of([((a, b, STOP), 3 * a + b) for a in range(3) for b in range(3)])), Toy(STOP + 1)
    small = (Room(1), Room(0))
    assert not steady_beam(toy, *toy.prefill(QUERIES), walk, BeamOptions(5), small).fits(small)


@cache
def model(pooled: bool = False, gated: bool = True) -> T5:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 16, "heads": 2, "d_ff": 48, "encoder_layers": 2, "decoder_layers": 2}
    made = T5(T5Shape.for_docids(40, STOP + 1, **sizes, pooled=pooled, gated=gated))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.4 if parameter.dim() > 1 else 1))
    return made.eval()


def tokens(count: int, length: int = 7) -> Tokenise:
    chance = torch.Generator().manual_seed(count)
    ids = torch.randint(1, 40, (count, length), generator=chance)
    mask = (torch.arange(length) < torch.randint(1, length + 1, (count, 1), generator=chance)).long()
    return lambda _texts: (ids, mask)


@given(pairs, options, st.integers(1, 5), st.booleans())
@settings(max_examples=15)
def test_fused_and_even_decoders_write_what_the_plain_one_writes(
    listed: list[Pair], how: BeamOptions, queries: int, pooled: bool
) -> None:
    walk, tokenise = Walk(Trie.of(listed)), tokens(queries)
    plain, fused = Seq2SeqGenerator(model(pooled), tokenise), FusedGenerator(model(pooled), tokenise)
    expected = documents(walk, beam(plain, *plain.prefill([""] * queries), walk, how, keep=5), 5, ties=True)
    for steady in (fused, EvenSeq2SeqGenerator(model(pooled), tokenise)):
        search = SteadySearch(steady, walk)
        for _ in range(2):  # measured, then planned
            same(search.search([""] * queries, how, 5, ties=True), expected, 1e-4)


@pytest.mark.parametrize("gated", [True, False])
def test_the_states_are_those_of_the_plain_decoder(gated: bool) -> None:
    tokenise, made = tokens(4), model(gated=gated)
    plain, fused = Seq2SeqGenerator(made, tokenise), FusedGenerator(made, tokenise)
    (cache, hidden), (fused_cache, fused_hidden) = (each.prefill([""] * 4) for each in (plain, fused))
    torch.testing.assert_close(fused_hidden, hidden, atol=1e-4, rtol=1e-4)
    parents = torch.arange(4).repeat_interleave(3)
    for step in (1, 1, 3):
        written = torch.randint(0, STOP + 1, (12, step))
        cache, hidden = plain.extend(cache, parents, written)
        fused_cache, fused_hidden = fused.extend(fused_cache, parents, written)
        torch.testing.assert_close(fused_hidden, hidden, atol=1e-4, rtol=1e-4)
        parents = torch.tensor([2, 0, 1, 4, 4, 5, 8, 7, 6, 9, 9, 11])


@pytest.mark.parametrize("docids", [Naive(), Title(), Semantic(branch=3, leaf=4), Codebook(levels=2, bits=2)])
@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("causal", ["", pytest.param(",causal=true", marks=pytest.mark.long)])
def test_engines_find_the_same(docids: Scheme, normalisation: str, causal: str) -> None:
    names = [f"{kind}.{verb}" for kind in ("json", "pickle", "csv", "zip") for verb in ("dump", "load", "open", "read")]
    data = Dataset.of("functions", [Document(name, f"How to {name}.", name.replace(".", " ")) for name in names])
    tiny = {"backbone": f"scratch:hidden=32,layers=1,heads=2,vocabulary=300{causal}", "training": DocidTuning(steps=0)}
    searching = SearchOptions(width=6, normalisation=normalisation)
    retriever = Generative(docids=docids, search_options=searching, decoder=DecoderOptions(rows="random"), **tiny)
    engine = retriever.fit(data).engine
    found = engine.docids
    queries = ["load a csv file", "zip", "how to open a pickle that was dumped"]
    steady = engine.made_steady()
    assert steady is not None
    plain = found.generator()
    how = searching.following(found.normalisation).beam(5)
    expected = [
        documents(found.walk, beam(plain, *plain.prefill([query]), found.walk, how, keep=5), 5, ties=True)[0]
        for query in queries
    ]
    for _ in range(2):
        same(steady.search(queries, how, 5, ties=True), expected, 1e-4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Generative, {"docids": Title()}),
        (Generative, {"docids": Semantic(branch=3, leaf=4), "decoder": DecoderOptions(rows="nodes")}),
        (Contextual, {}),
        (GDR, {"docids": Cluster(clusters=4, branch=2)}),
    ],
    ids=["docids", "nodes", "titles", "clusters"],
)
def test_an_engine_that_records_finds_the_same(
    kind: type[Retriever], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which alone records: all else of the way through an engine is the same here."""
    texts = [f"{noun} {verb}" for noun in ("json", "pickle", "csv", "zip") for verb in ("dump", "load", "open", "read")]
    data = Dataset.of("functions", [Document(text, f"How to {text} a file.", text) for text in texts])
    tiny = {"backbone": "scratch:hidden=32,layers=1,heads=2,vocabulary=300", "training": DocidTuning(steps=0)}
    retriever = kind(**tiny, **options).fit(data)
    expected = retriever.search_many(QUERIES, 4)
    monkeypatch.setattr(SearchOptions, "records_on", lambda _options, _device: True)
    engine = replace(retriever.engine)  # which has not searched yet
    for _ in range(2):  # measured, then planned
        found = engine.search(retriever.documents, QUERIES, 4)
        assert [[hit.id for hit in hits] for hits in found] == [[hit.id for hit in hits] for hits in expected]
        for hits, others in zip(found, expected, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-4)
    assert vars(engine).get("_steady") is not None, "the search went another way"


GRID = Trie.of([((a, b, c, STOP), 25 * a + 5 * b + c) for a in range(5) for b in range(5) for c in range(5)])
ALIKE = [""] * 3
"""Prompts of one length, so that they stay in order."""


def plainly(made: T5, walk: Walk, tokenise: Tokenise, how: BeamOptions) -> Found:
    plain = Seq2SeqGenerator(made, tokenise)
    return documents(walk, beam(plain, *plain.prefill(ALIKE), walk, how, keep=5), 5, ties=True)


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
def test_a_search_without_room_is_made_again(normalisation: str) -> None:
    walk, tokenise, how = Walk(GRID), tokens(3), BeamOptions(8, normalisation)
    search = SteadySearch(FusedGenerator(model(), tokenise), walk)
    search.search(ALIKE, how, 5)
    search.plans = dict.fromkeys(search.plans, (Room(1), Room(0)))
    same(search.search(ALIKE, how, 5, ties=True), plainly(model(), walk, tokenise, how), 1e-4)
    assert search.again == 1
    same(search.search(ALIKE, how, 5, ties=True), plainly(model(), walk, tokenise, how), 1e-4)
    assert search.again == 1


def test_weights_that_have_changed_are_heeded() -> None:
    walk, tokenise, how, made = Walk(GRID), tokens(3), BeamOptions(8), copy.deepcopy(model())
    search = SteadySearch(FusedGenerator(made, tokenise), walk)
    before = search.search(ALIKE, how, 5, ties=True)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(-1)
    after = search.search(ALIKE, how, 5, ties=True)
    same(after, plainly(made, walk, tokenise, how), 1e-4)
    assert after != before


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
def test_a_gpu_replays_what_it_has_recorded(normalisation: str) -> None:
    how, made = BeamOptions(8, normalisation), copy.deepcopy(model()).cuda()
    walk = Walk(GRID, "cuda")
    search = SteadySearch(FusedGenerator(made, tokens(3)), walk)
    for seed in (3, 3, 3, 4, 5):  # the first is measured, the second recorded, the others replayed
        ids, mask = tokens(seed)([])
        expected = plainly(made, walk, lambda _, given=(ids[:3], mask[:3]): given, how)
        same(search.search_tokens(ids[:3], mask[:3], how, 5, ties=True), expected, 1e-3)
    assert len(search.recorded) >= 1
    assert not search.recorded.broken


@pytest.mark.slow
def test_a_gpu_records_again_when_the_last_recording_is_forgotten() -> None:
    recorded, numbers = Recorded(), torch.arange(1000.0, device="cuda")
    for times in (2, 3):
        for _ in range(2):
            [result] = recorded("key", lambda given, times=times: (given * times,), (numbers,))
            assert torch.equal(result.cpu(), (numbers * times).cpu())
        assert len(recorded) == 1
        recorded.forget("key")
    assert not recorded.broken


def test_many_children_are_searched_for_few_queries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triever.search.steady_search.CHILDREN", 2 * 8 * 5)  # two queries of 8 beams of 5 children
    walk, how, sizes = Walk(GRID), BeamOptions(8), []
    search = SteadySearch(
        FusedGenerator(model(), lambda texts: sizes.append(len(texts)) or tokens(len(texts))([])), walk
    )
    assert len(search.search([""] * 7, how, 5)) == 7
    assert sizes == [2, 2, 2, 1]


def test_only_what_kernels_take_is_fused() -> None:
    assert can_fuse(model(), 6)
    assert not can_fuse(model(), PLACES)
    assert not can_fuse(torch.nn.Linear(1, 1), 6)
    odd = T5Shape.for_docids(40, STOP + 1, d_model=24, d_kv=12, heads=2, encoder_layers=1, decoder_layers=1)
    assert not can_fuse(T5(odd), 6)
