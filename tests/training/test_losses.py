"""Each loss against its formula, done naively in Python floats."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triever.models.late_interaction import late_scores
from triever.training.losses import CONTRASTS, contrastive, divergence, listwise

numbers = st.floats(-4, 4, width=32)


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_contrastive_is_minus_the_log_probability_of_the_positive(
    queries: int, documents: int, chance: random.Random
) -> None:
    scores = [[chance.uniform(-4, 4) for _ in range(documents)] for _ in range(queries)]
    positive = [chance.randrange(documents) for _ in range(queries)]
    excluded = [[chance.random() < 0.3 for _ in range(documents)] for _ in range(queries)]
    total = 0.0
    for row, right, out in zip(scores, positive, excluded, strict=True):
        counted = [math.exp(score) for place, score in enumerate(row) if place == right or not out[place]]
        total -= math.log(math.exp(row[right]) / sum(counted))
    found = contrastive(torch.tensor(scores), torch.tensor(positive), torch.tensor(excluded))
    assert float(found) == pytest.approx(total / queries, abs=1e-4)


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_divergence_is_that_of_two_softmaxes_over_what_the_teacher_knows(
    queries: int, candidates: int, chance: random.Random
) -> None:
    scores = [[chance.uniform(-4, 4) for _ in range(candidates)] for _ in range(queries)]
    taught = [[chance.choice([-math.inf, chance.uniform(-4, 4)]) for _ in range(candidates)] for _ in range(queries)]
    total = 0.0
    for row, teacher in zip(scores, taught, strict=True):
        known = [place for place, value in enumerate(teacher) if value > -math.inf]
        ours, theirs = ([math.exp(values[place]) for place in known] for values in (row, teacher))
        for mine, right in zip(ours, theirs, strict=True):
            total += right / sum(theirs) * math.log(right / sum(theirs) / (mine / sum(ours)))
    given = torch.tensor(scores, requires_grad=True)
    found = divergence(given, torch.tensor(taught))
    assert found.item() == pytest.approx(total / queries, abs=1e-4)
    found.backward()
    assert given.grad is not None
    assert given.grad.isfinite().all()
    assert (given.grad[torch.tensor(taught).isinf()] == 0).all(), "what it does not know is left alone"


def test_listwise_wants_the_first_candidate() -> None:
    scores = [[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]
    expected = -sum(math.log(math.exp(row[0]) / sum(map(math.exp, row))) for row in scores) / 2
    assert float(listwise(torch.tensor(scores))) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=30)
@given(st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_late_interaction_is_the_sum_of_best_matches(
    queries: int, documents: int, chance: random.Random, mean: bool
) -> None:
    def some(count: int) -> list[list[list[float]]]:
        return [[[chance.uniform(-1, 1) for _ in range(3)] for _ in range(chance.randint(1, 4))] for _ in range(count)]

    left, right = some(queries), some(documents)
    expected = []
    for query in left:
        for document in right:
            best = [max(sum(a * b for a, b in zip(one, other, strict=True)) for other in document) for one in query]
            expected.append(sum(best) / (len(best) if mean else 1))
    found = late_scores(*_padded(left), *_padded(right), mean=mean)
    assert found.reshape(-1).tolist() == pytest.approx(expected, abs=1e-5)


def _padded(texts: list[list[list[float]]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, texts)) + 1
    vectors, mask = torch.full((len(texts), longest, 3), 9.0), torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        vectors[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return vectors, mask


@given(
    st.lists(st.sets(st.integers(0, 6), max_size=4), min_size=1, max_size=5),
    st.sampled_from(sorted(CONTRASTS)),
    st.randoms(use_true_random=False),
)
def test_token_level_losses_are_their_formulas(titles: list[set[int]], kind: str, chance: random.Random) -> None:
    scores = torch.tensor([[chance.uniform(-4, 4) for _ in range(7)] for _ in titles], requires_grad=True)
    most = max(1, max(map(len, titles)))
    own = torch.tensor([[*sorted(title), *[-100] * (most - len(title))] for title in titles])
    found = CONTRASTS[kind](scores, own)
    batch = set().union(*titles)
    each = []
    for row, title in zip(scores.exp().tolist(), titles, strict=True):
        if not title:
            continue
        if kind == "matrix+multiple":
            each.append(-math.log(sum(row[one] for one in title) / sum(row)))
            continue
        against = set(range(7)) if kind == "matrix+single" else batch - title
        losses = [-math.log(row[one] / sum(row[other] for other in against | {one})) for one in title]
        each.append(sum(losses) / len(losses))
    assert found.item() == pytest.approx(sum(each) / max(1, len(each)), abs=1e-4)
    found.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
