"""Every scheme against enumeration: all documents' probabilities by transformers' own forward pass.

A tiny random T5 of transformers is the judge. It is run once for each docid, and its scores are normalised and
summed in the obvious way; the search runs our conversion of it, by beam and exactly.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from tests.docids.test_quantize import clustered
from triever import Document
from triever.docids.schemes import (
    SCHEMES,
    Atomic,
    Cluster,
    Codebook,
    Docid,
    GivenDocids,
    Naive,
    Scheme,
    Semantic,
    Title,
)
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.t5 import from_transformers
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.hits import documents

COUNT, ADDED, ROOM = 30, 8, 10
NEAR = 1e-4
NAMES = ("New York", "New York City", "New", "York", "City of New York", "Title")
DOCUMENTS = [
    # Some titles are equal, some begin others, and some documents have none.
    Document(f"doc-{number}", "text", "" if number % 10 == 9 else f"{NAMES[number % 6]}{' Two' * (number % 4 // 3)}")
    for number in range(COUNT + ADDED)
]
VECTORS = clustered(COUNT + ADDED, 6)
IDS = torch.tensor([[5, 2, 4, 1], [3, 1, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


@cache
def own_docids() -> str:
    """A file of docids of one's own, some of which begin others."""
    file = Path(tempfile.mkdtemp()) / "docids.tsv"
    docids = [f"a{number % 4} b{number // 4}" + " c" * (number % 3) for number in range(COUNT + ADDED)]
    file.write_text("".join(f"doc-{number}\t{docid}\n" for number, docid in enumerate(docids)), encoding="utf-8")
    return str(file)


MAKE: dict[str, Callable[[], Scheme]] = {
    "atomic": Atomic,
    "naive": Naive,
    "title": lambda: Title(vocabulary=100),
    "semantic": lambda: Semantic(branch=3, leaf=4),
    "2d semantic": lambda: Semantic(branch=3, leaf=4, positions=True),
    "codebook": lambda: Codebook(levels=2, bits=2),
    "cluster": lambda: Cluster(clusters=8, branch=3),
    "given": lambda: GivenDocids(own_docids(), ending=True),
}
STATES = ("fitted", "changed", "several docids")

Pair = tuple[Docid, int]


@dataclass(frozen=True)
class Case:
    """A trie to search, the pairs that are alive in it, and a generator over the scheme's symbols."""

    walk: Walk
    pairs: list[Pair]
    generator: Seq2SeqGenerator

    @property
    def count(self) -> int:
        return len({number for _, number in self.pairs})


@cache
def tiny_t5(width: int) -> T5ForConditionalGeneration:
    """Symbols, and room for those that atomic docids add; the last one starts every docid."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 4, "num_heads": 2, "d_ff": 16, "num_layers": 1}
    config = T5Config(vocab_size=width + ROOM, decoder_start_token_id=width + ROOM - 1, **sizes)
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():  # initial weights make every symbol nearly as likely as any other
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        model.shared.weight.mul_(4)
    return model


@cache
def case(name: str, state: str) -> Case:
    scheme = MAKE[name]()
    pairs = list(zip(scheme.fit(DOCUMENTS[:COUNT], VECTORS[:COUNT]), range(COUNT), strict=True))
    model = tiny_t5(scheme.width)
    trie, pairs = changed(state, scheme, pairs)
    assert model.config.vocab_size > scheme.width
    return Case(Walk(trie), pairs, Seq2SeqGenerator(from_transformers(model), lambda _texts: (IDS, MASK)))


def changed(state: str, scheme: Scheme, pairs: list[Pair]) -> tuple[Trie, list[Pair]]:
    trie = Trie.of(pairs)
    if state == "fitted":
        return trie, pairs
    new = [scheme.place(DOCUMENTS[number], VECTORS[number]) for number in range(COUNT, COUNT + ADDED)]
    if state == "several docids":  # a document that is also found by the docid of another
        more = [(docid, number) for number, docid in enumerate(new) if (docid, number) not in pairs]
        return trie.with_added(more), [*pairs, *more]
    more = list(zip(new, range(COUNT, COUNT + ADDED), strict=True))
    # Some go that were fitted, all that share a docid with the first, and one that was added.
    gone = {2, 11, 23, COUNT + 1, *(number for docid, number in pairs if docid == pairs[0][0])}
    trie = trie.without([2]).with_added(more).without(gone)
    return trie, [pair for pair in pairs + more if pair[1] not in gone]


@cache
@torch.inference_mode()
def logits(vocabulary: int, docid: Docid) -> torch.Tensor:
    """(queries, length, vocabulary), a whole forward pass for each docid."""
    model = tiny_t5(vocabulary - ROOM)
    begun = [model.config.decoder_start_token_id, *docid[:-1]]
    decoder = torch.tensor([begun] * len(IDS))
    return model(input_ids=IDS, attention_mask=MASK, decoder_input_ids=decoder).logits.double()


@cache
def enumerated(name: str, state: str, normalisation: str) -> list[dict[int, float]]:
    """For each query the log-probability of every document."""
    pairs, width = case(name, state).pairs, case(name, state).generator.width
    following: dict[Docid, set[int]] = defaultdict(set)
    for docid, _ in pairs:
        for depth, symbol in enumerate(docid):
            following[docid[:depth]].add(symbol)
    masses: list[dict[int, float]] = [defaultdict(float) for _ in IDS]
    for docid, number in pairs:
        sharing = sum(other == docid for other, _ in pairs)
        for row, scores in enumerate(logits(width, docid)):
            total = 0.0
            for depth, symbol in enumerate(docid):
                over = scores[depth, sorted(following[docid[:depth]])] if normalisation == "trie" else scores[depth]
                total += float(scores[depth, symbol] - over.logsumexp(0))
            masses[row][number] += math.exp(total) / sharing
    return [{number: math.log(mass) for number, mass in row.items()} for row in masses]


def assert_ordered(found: Iterable[int], truth: dict[int, float]) -> None:
    """None before one that is clearly better."""
    assert all(truth[first] > truth[second] - NEAR for first, second in combinations(found, 2))


def test_every_scheme_is_judged() -> None:
    assert {make().kind for make in MAKE.values()} == set(SCHEMES)


@pytest.mark.parametrize("name", MAKE)
def test_the_cases_have_what_they_are_for(name: str) -> None:
    fitted, new, several = (case(name, state) for state in STATES)
    assert (fitted.count, several.count) == (COUNT, COUNT)
    assert len(several.pairs) > COUNT
    assert len(new.walk.parts) == len(several.walk.parts) == 2, "adds are searched beside the old ones"
    assert {number for _, number in new.pairs} & set(range(COUNT, COUNT + ADDED))
    assert sorted(new.walk.trie.items()) == sorted(new.pairs)
    for state in STATES:
        for truth in enumerated(name, state, "trie"):
            assert sum(map(math.exp, truth.values())) == pytest.approx(1)
            assert max(truth.values()) - min(truth.values()) > 1, "the model should prefer some to others"
    if name in ("title", "codebook", "cluster"):
        assert fitted.walk.trie.info()["shared docids"] > 0


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", MAKE)
def test_a_wide_beam_equals_enumeration(name: str, state: str, normalisation: str, finish: bool) -> None:
    one = case(name, state)
    options = BeamOptions(width=len(one.pairs), normalisation=normalisation, finish=finish)
    frontier = beam(one.generator, *one.generator.prefill(["q"] * len(IDS)), one.walk, options)
    hits = documents(one.walk, frontier, 2 * len(one.pairs))
    for found, truth in zip(hits, enumerated(name, state, normalisation), strict=True):
        assert dict(found) == pytest.approx(truth, abs=NEAR)
        assert_ordered([number for number, _ in found], truth)


@pytest.mark.parametrize("k", [4, 2 * COUNT])
@pytest.mark.parametrize("normalisation", ["trie", "vocabulary"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", MAKE)
def test_exact_equals_enumeration_and_is_certified(name: str, state: str, normalisation: str, k: int) -> None:
    one = case(name, state)
    results = exact(one.generator, *one.generator.prefill(["q"] * len(IDS)), one.walk, k, normalisation=normalisation)
    for result, truth in zip(results, enumerated(name, state, normalisation), strict=True):
        assert result.certified
        found = dict(result.documents)
        best = sorted(truth.values(), reverse=True)[: min(k, one.count)]
        assert len(found) == len(best)
        assert all(truth[number] > best[-1] - NEAR for number in found), "not one of the best"
        if state == "several docids":  # what is certified is which documents, not how much each has
            assert all(mass < truth[number] + NEAR for number, mass in found.items())
            continue
        assert found == pytest.approx({number: truth[number] for number in found}, abs=NEAR)
        assert_ordered(found, truth)
