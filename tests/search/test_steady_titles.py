"""Titles whose tokens have several ids, searched in fixed shapes against the search step by step."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.search.test_contextual_generator import counts, titles, vocabulary
from tests.search.test_steady import same, tokens
from tests.search.toy import Pair
from triever import Contextual, Dataset, DocidTuning, Document, SearchOptions
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.engines.titles import TitleEngine
from triever.models.contextual_generator import ContextualGenerator
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.even_contextual import EvenContextualGenerator
from triever.models.even_decoder import EvenSeq2SeqGenerator
from triever.models.fused_decoder import FusedGenerator
from triever.models.t5 import T5, T5Shape
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.search.steady_search import SteadySearch

options = st.builds(
    BeamOptions,
    width=st.integers(1, 8),
    normalisation=st.sampled_from(["trie", "vocabulary"]),
    temperature=st.sampled_from([1.0, 0.7]),
    finish=st.booleans(),
)


@cache
def model(ids: int) -> T5:
    torch.manual_seed(ids)
    sizes = {"d_model": 32, "d_kv": 16, "heads": 2, "d_ff": 48, "encoder_layers": 1, "decoder_layers": 2}
    made = T5(T5Shape.for_docids(40, ids, **sizes))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.4 if parameter.dim() > 1 else 1))
    return made.eval()


@example([((0, 3), 0), ((0, 0, 3), 1), ((1, 3), 2)], [1, 1, 3], BeamOptions(1, "vocabulary"), 1, 0.0, False)
@given(titles, counts, options, st.integers(1, 5), st.sampled_from([0.0, 0.05]), st.booleans())
@settings(max_examples=30)
def test_fixed_shapes_find_what_a_search_step_by_step_finds(
    listed: list[Pair], several: list[int], how: BeamOptions, paths: int, negligible: float, is_fused: bool
) -> None:
    made, walk, tokenise = vocabulary(several), Walk(Trie.of(listed)), tokens(3)
    t5, kind = model(len(made)), FusedGenerator if is_fused else EvenSeq2SeqGenerator
    plain = ContextualGenerator(Seq2SeqGenerator(t5, tokenise), made, paths=paths, negligible=negligible)
    expected = documents(walk, beam(plain, *plain.prefill([""] * 3), walk, how, keep=5), 5, ties=True)
    even = EvenContextualGenerator(kind(t5, tokenise), made, paths=paths, negligible=negligible)
    search = SteadySearch(even, walk)
    for _ in range(2):  # measured, then planned
        same(search.search([""] * 3, how, 5, ties=True), expected, 1e-4)


NAMES = [f"{kind} {verb}" for kind in ("json", "pickle", "csv", "zip") for verb in ("dump", "load", "open", "read")]
ASKED = ["load a csv file", "zip", "how to open a pickle that was dumped"]


@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
def test_engines_find_the_same(normalisation: str) -> None:
    data = Dataset.of("functions", [Document(name, f"How to {name}.", name) for name in NAMES])
    small = {"backbone": "scratch:hidden=32,layers=1,heads=2,vocabulary=300", "training": DocidTuning(steps=0)}
    how = SearchOptions(width=6, normalisation=normalisation)
    engine = Contextual(search_options=how, **small).fit(data).engine
    assert isinstance(engine, TitleEngine)
    steady, plain = engine.made_steady(), engine.generator()
    assert steady is not None
    walk, wanted = engine.docids.walk, how.beam(5)
    expected = [
        documents(walk, beam(plain, *plain.prefill([query]), walk, wanted, keep=5), 5, ties=True)[0] for query in ASKED
    ]
    for _ in range(2):
        same(steady.search(ASKED, wanted, 5, ties=True), expected, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("kind", [FusedGenerator, EvenSeq2SeqGenerator])
def test_a_gpu_replays_what_it_has_recorded(normalisation: str, kind: type) -> None:
    three = range(3)
    made, walk = vocabulary([3, 2, 3]), Walk(Trie.of([((a, b, 3), 3 * a + b) for a in three for b in three]), "cuda")
    t5, how = copy.deepcopy(model(len(made))).cuda(), BeamOptions(4, normalisation)
    search = SteadySearch(EvenContextualGenerator(kind(t5, tokens(3)), made, paths=3), walk)
    for seed in (3, 3, 3, 4, 5):  # the first is measured, the second recorded, the others replayed
        ids, mask = (tensor[:3] for tensor in tokens(seed)([]))
        plain = ContextualGenerator(Seq2SeqGenerator(t5, lambda _, given=(ids, mask): given), made, paths=3)
        expected = documents(walk, beam(plain, *plain.prefill([""] * 3), walk, how, keep=5), 5, ties=True)
        same(search.search_tokens(ids, mask, how, 5, ties=True), expected, 1e-3)
    assert len(search.recorded) >= 1
    assert not search.recorded.broken
