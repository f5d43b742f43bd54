"""Numbers about a contextual vocabulary, against double loops, brute force and counts that are written out."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.retrievers.contract import DOCUMENTS, dataset
from tests.retrievers.test_contextual import contextual
from triever import BM25, Dataset, Document, UsageError
from triever.docids.contextual_vocabulary import Vocabulary
from triever.docids.schemes import Title
from triever.engines.titles import InContext
from triever.evaluation import vocabulary as module
from triever.evaluation.finding import Finding
from triever.evaluation.vocabulary import clustered, same_token, storage, top_share, uniformity, vocabulary
from triever.retrievers.contextual import Contextual, VocabularyOptions


@pytest.fixture(scope="module")
def fitted() -> Contextual:
    return contextual(vocabulary=VocabularyOptions(k=2)).fit(dataset())


@pytest.fixture(scope="module")
def found(fitted: Contextual) -> Finding:
    return vocabulary(fitted, words=["how"], clusters=4)


# --- uniformity ---------------------------------------------------------------------------------------------------


def naive_uniformity(vectors: list[list[float]]) -> float:
    """The mean of exp(-2 |x - y|²) over all pairs, in two loops."""
    terms = [math.exp(-2 * math.dist(one, other) ** 2) for at, one in enumerate(vectors) for other in vectors[at + 1 :]]
    return math.log(math.fsum(terms) / len(terms))


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 1000))
def test_uniformity_is_that_of_two_loops(count: int, size: int, seed: int) -> None:
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, size)))
    value, lost = uniformity(vectors)
    assert value == pytest.approx(naive_uniformity(vectors.tolist()), rel=1e-9, abs=1e-9)
    far = [2 * math.dist(one, other) ** 2 > -module.UNDERFLOW for one, other in combinations(vectors.tolist(), 2)]
    assert lost == pytest.approx(sum(far) / len(far))


def test_uniformity_in_parts() -> None:
    """More rows than are looked at at once."""
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(1203, 2)))
    assert uniformity(vectors)[0] == pytest.approx(naive_uniformity(vectors.tolist()), rel=1e-9)


def test_far_pairs_underflow_and_are_counted_all_the_same() -> None:
    """Three points on a line: two pairs at 10, whose term is exp(-200), and one at 20."""
    value, lost = uniformity(torch.tensor([[0.0], [10], [20]]))
    assert value == pytest.approx(math.log(2 / 3) - 200)
    assert lost == 1
    value, lost = uniformity(torch.tensor([[0.0], [1], [20]]))
    assert value == pytest.approx(math.log(1 / 3) - 2)
    assert lost == 2 / 3


def test_rows_of_length_one_hardly_go_below_minus_four() -> None:
    many = torch.nn.functional.normalize(torch.randn(800, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    assert -4.01 < uniformity(many)[0] < -3.8


# --- neighbours ---------------------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 1000))
def test_same_tokens_are_those_of_brute_force(count: int, tokens: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows, symbols = chance.normal(size=(count, 3)).astype(np.float32), chance.integers(0, tokens, count)
    expected = []
    for one in range(count):
        others = sorted((math.dist(rows[one], rows[other]), other) for other in range(count) if other != one)
        expected.append(sum(symbols[other] == symbols[one] for _, other in others[:5]))
    assert same_token(torch.from_numpy(rows), symbols, np.arange(count)).tolist() == expected


def test_an_id_is_not_its_own_neighbour_even_among_equals() -> None:
    rows, symbols = torch.zeros(8, 2), np.arange(8)
    assert same_token(rows, symbols, np.arange(8)).tolist() == [0] * 8


def test_rates_of_neighbours_by_hand() -> None:
    """Token 0 has three ids that lie together, token 1 has one: of three neighbours each, 2, 2, 2 and 0 are its own."""
    rows, symbols = torch.tensor([[0.0], [1], [2], [9]]), np.array([0, 0, 0, 1])
    rates = module._neighbours(rows, symbols, np.arange(4))
    assert rates["nearest"] == 3
    assert rates["rate"] == pytest.approx((2 + 2 + 2 + 0) / (4 * 3))
    assert rates["rate_with_others"] == pytest.approx((2 + 2 + 2) / (3 * 3))
    assert rates["most_possible"] == pytest.approx((2 + 2 + 2 + 0) / (4 * 3))
    assert (rates["drawn"], rates["drawn_with_others"]) == (4, 3)
    assert rates["ids_by_count"] == [1, 0, 3, 0]


# --- clusters over all --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
def test_the_top_share_is_a_count(number: list[int]) -> None:
    sizes = sorted((number.count(one) for one in set(number)), reverse=True)
    kept = len(sizes) // 10 or 1
    assert top_share(np.unique(number, return_counts=True)[1]) == sum(sizes[:kept]) / len(number)


def test_the_top_share_by_hand() -> None:
    assert top_share(np.array([1] * 19 + [5])) == 6 / 24  # 20 clusters, of which the two largest hold 5 and 1
    assert top_share(np.array([7])) == 1


def test_clusters_over_all_are_found_and_few_states_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    states = np.concatenate([chance.normal(at, 0.1, (50, 2)) for at in (0, 10, 20)]).astype(np.float16)
    for most, slab in ((2**20, 2**17), (60, 7)):
        monkeypatch.setattr(module, "LEARNED_FROM", most)
        monkeypatch.setattr(module, "SLAB", slab)
        number = clustered(states, 3).reshape(3, 50)
        assert (number == number[:, :1]).all()
        assert len(np.unique(number)) == 3
    assert len(clustered(states[:5], 100)) == 5


# --- storage ------------------------------------------------------------------------------------------------------


def test_storage_by_hand() -> None:
    """Three ids and seven occurrences of width 4 beside a backbone with ten tokens, in two bytes or in four."""
    for kind, size in ((torch.float32, 4), (torch.float16, 2)):
        known = Vocabulary(np.array([0, 2]), np.array([2, 1]), torch.zeros(3, 4, dtype=kind))
        titles = InContext(known, Title(), torch.zeros(10, 4), np.zeros(7, np.int64), np.zeros(7, np.int64), list)
        assert storage(titles) == {
            "type": str(kind)[6:],
            "matrix": {"vectors": 3, "bytes": 3 * 4 * size},
            "all_states": {"vectors": 7, "bytes": 7 * 4 * size},
            "plain_vocabulary": {"vectors": 10, "bytes": 10 * 4 * size},
        }


# --- a fitted model -----------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_model(fitted: Contextual, found: Finding) -> None:
    engine = fitted.engine
    titles = [symbol for row in range(len(DOCUMENTS)) for symbol in engine.docids.docid(row)[:-1]]
    values, card = found.values, engine.docids.trained
    assert values["occurrences"] == len(titles)
    assert values["tokens"] == len(set(titles))
    assert values["ids"] == sum(min(2, titles.count(one)) for one in set(titles)) + 1 == card["decoder ids"]
    assert values["storage"]["matrix"]["bytes"] == card["bytes"]
    assert values["storage"]["all_states"]["bytes"] == card["bytes of all states"]
    assert values["uniformity"]["ids"] == values["same_token"]["drawn"] == values["ids"] - 1
    rows = engine.vocabulary.rows[:-1].double()
    assert values["uniformity"]["raw"]["value"] == pytest.approx(naive_uniformity(rows.tolist()), rel=1e-5)
    unit = rows / rows.norm(dim=1, keepdim=True)
    assert values["uniformity"]["unit"]["value"] == pytest.approx(naive_uniformity(unit.tolist()), rel=1e-5)


def test_states_are_those_that_the_vocabulary_was_made_from(fitted: Contextual) -> None:
    titles = fitted.in_context()
    _, ids = titles.vocabulary.placed(titles.symbols, titles.states)
    for number in np.unique(ids):
        mean = titles.states[ids == number].astype(np.float32).mean(0)
        np.testing.assert_allclose(titles.vocabulary.rows[number].detach().numpy(), mean, atol=1e-4)


def test_the_clusters_of_a_word_hold_all_titles_with_it(fitted: Contextual, found: Finding) -> None:
    """Two titles begin with how, and with two ids at most each of them has its own."""
    (word,) = found.values["words"]
    named = ["How to brew tea", "How to make coffee"]
    assert word["occurrences"] == 2
    assert sorted(title for one in word["ids"] for title in one["titles"]) == named
    assert sorted(title for one in word["largest_clusters"] for title in one["shown"][0]["titles"]) == named
    assert all(one["shown"][0]["token"] == word["token"] for one in word["largest_clusters"])
    again = vocabulary(fitted, words=[word["token"]], clusters=4).values["words"]
    assert again == [word], "the piece itself is the same word"


def test_the_words_that_are_shown_are_those_in_most_clusters(fitted: Contextual) -> None:
    values = vocabulary(fitted).values  # as many clusters as ids
    titles = fitted.in_context()
    number = clustered(titles.states, values["ids"] - 1)
    shown = [word["clusters"] for word in values["words"]]
    inside = {
        symbol: len({*number[titles.symbols == symbol].tolist()})
        for symbol in titles.symbols.tolist()
        if sum(map(str.isalpha, titles.scheme.symbol(symbol))) > 2
    }
    assert shown == sorted(inside.values(), reverse=True)[:2]
    assert values == vocabulary(fitted).values, "chance is the same each time"


def test_a_finding_is_json_text_and_a_picture(found: Finding, tmp_path: Path) -> None:
    json.dumps(found.to_dict(), allow_nan=False)
    lines = [line for part in found.parts for line in part.lines]
    assert any(line.startswith("  id ") and "How to brew tea" in line for line in lines)
    found.plot(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_deleted_documents_are_not_counted(fitted: Contextual) -> None:
    fewer = contextual(vocabulary=VocabularyOptions(k=2)).fit(dataset())
    fewer.delete(["tea"])
    before, after = (vocabulary(one, clusters=2).values for one in (fitted, fewer))
    assert after["documents"] == len(DOCUMENTS) - 1
    assert after["occurrences"] < before["occurrences"]
    assert after["ids"] == before["ids"], "they stay"


def test_what_cannot_be_looked_at_is_said(fitted: Contextual) -> None:
    with pytest.raises(UsageError, match="a bm25 retriever has no contextual vocabulary; make one with: triever fit"):
        vocabulary(BM25().fit(dataset()))
    genre = contextual(vocabulary=VocabularyOptions(k=0)).fit(dataset())
    with pytest.raises(UsageError, match=r"no clusters; fit a retriever with vocabulary\.k above 0"):
        vocabulary(genre)
    with pytest.raises(UsageError, match="'zzz' is not a token of any title; name one of its pieces: "):
        vocabulary(fitted, words=["zzz"])
    nothing = contextual().fit(Dataset.of("one", [Document("a", "water", "tide")], [], {}))
    nothing.delete(["a"])
    with pytest.raises(UsageError, match="too few to compare"):
        vocabulary(nothing)
