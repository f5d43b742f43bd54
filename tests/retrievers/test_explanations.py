"""Panels of explanations: matches by one product at a time, spellings, composites, and what is printed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from tests.retrievers.test_reatt import reatt
from triever import BM25, Dataset, Dense, Document, Explanation, Fused, Generative, MultiVector, Semantic, TokenOptions
from triever.docids.schemes import Title
from triever.engines.panels import Beam, Matches, matched
from triever.models.decoders import DecoderOptions
from triever.retrievers.contextual import Contextual, SpellingOptions, VocabularyOptions
from triever.training.tuning import DocidTuning

TINY = "scratch:hidden=32,layers=1,heads=2,vocabulary=400"
NOTHING = DocidTuning(steps=0)
TEXTS = {document.id: document.full_text for document in DOCUMENTS}


def matches(explanation: Explanation) -> Matches:
    [panel] = explanation.panels
    assert isinstance(panel, Matches)
    return panel


def beam(explanation: Explanation) -> Beam:
    [panel] = explanation.panels
    assert isinstance(panel, Beam)
    return panel


def states(encoder: torch.nn.Module, text: str) -> tuple[list[str], np.ndarray]:
    """The tokens of one text and what they were read as."""
    ids = encoder.tokenizer.ids([text], 256)
    with torch.inference_mode():
        read = encoder.module(input_ids=torch.tensor(ids), attention_mask=torch.ones(1, len(ids[0]), dtype=torch.long))
    return encoder.tokenizer.shown(ids[0]), read.last_hidden_state[0].numpy()


def test_pairs_of_tokens_add_up_to_the_cosine_of_means() -> None:
    dense = Dense(backbone=TINY).fit(dataset())
    explanation = dense.explain("boiling water", 4)
    panel, encoder = matches(explanation), dense.engine.encoder
    pieces, asked = states(encoder, "boiling water")
    assert list(panel.query) == pieces
    for hit, found in zip(explanation.result, panel.hits, strict=True):
        words, read = states(encoder, TEXTS[hit.id])
        lengths = np.linalg.norm(asked.mean(0)) * np.linalg.norm(read.mean(0)) * len(asked) * len(read)
        table = asked @ read.T / lengths
        assert list(found.document) == words
        assert found.weights == pytest.approx(table.sum(0).tolist(), abs=1e-5)
        assert found.query == pytest.approx(table.sum(1).tolist(), abs=1e-3)  # of the vector that the index has
        assert [score for *_, score in found.links] == pytest.approx(table.max(1).tolist(), abs=1e-5)
        assert [at for _, at, _ in found.links] == table.argmax(1).tolist()
        assert sum(found.weights) + found.rest == pytest.approx(hit.score, abs=1e-6)


def test_a_vector_that_is_no_mean_has_no_matches() -> None:
    assert Dense(backbone=TINY, pooling="first").fit(dataset()).explain("boiling water", 2).panels == ()


@pytest.mark.parametrize("score", ["maxsim", "avgmax"])
@pytest.mark.parametrize("punctuation", [True, False])
def test_links_of_late_interaction_are_the_score(score: str, punctuation: bool) -> None:
    index = TokenOptions(score=score)  # ty: ignore[invalid-argument-type]
    late = MultiVector(backbone=TINY, size=16, punctuation=punctuation, index=index).fit(dataset())
    explanation = late.explain(QUERIES[0], 4)
    panel, encoder = matches(explanation), late.engine.encoder
    pieces, asked = vectors(late, QUERIES[0].text)
    skipped = set() if punctuation else {*encoder.tokenizer.shown(encoder.tokenizer.punctuation())}
    for hit, found in zip(explanation.result, panel.hits, strict=True):
        words, read = vectors(late, TEXTS[hit.id])
        kept = [at for at, word in enumerate(words) if word not in skipped]
        table = asked @ read[kept].T / (len(pieces) if score == "avgmax" else 1)
        assert list(found.document) == [words[at] for at in kept]
        assert [(left, right) for left, right, _ in found.links] == list(enumerate(table.argmax(1).tolist()))
        assert [product for *_, product in found.links] == pytest.approx(table.max(1).tolist(), abs=2e-3)
        assert sum(product for *_, product in found.links) == pytest.approx(hit.score, abs=1e-4)
        assert sum(found.weights) == pytest.approx(hit.score, abs=1e-4)


def vectors(late: MultiVector, text: str) -> tuple[list[str], np.ndarray]:
    words, read = states(late.engine.encoder, text)
    with torch.inference_mode():
        projected = late.engine.encoder.projection(torch.from_numpy(read)).numpy()
    return words, projected / np.linalg.norm(projected, axis=1, keepdims=True)


def test_a_question_is_linked_with_what_it_attends_to() -> None:
    fitted = reatt().fit(dataset())
    explanation = fitted.explain(QUERIES[0], 2)
    [answer] = fitted.ask_many([QUERIES[0]])
    attended = {source.hit.id: source.matches for source in answer.sources}
    panel = matches(explanation)
    for hit, found in zip(explanation.result, panel.hits, strict=True):
        told = [
            (panel.query[left], found.document[right], score * len(panel.query)) for left, right, score in found.links
        ]
        assert [pair[:2] for pair in told] == [pair[:2] for pair in attended[hit.id]]
        assert [score for *_, score in told] == pytest.approx([score for *_, score in attended[hit.id]], abs=1e-5)
        assert sum(found.weights) == pytest.approx(hit.score, abs=1e-4)


def test_tokens_of_bytes_are_shown_as_characters() -> None:
    documents = [Document("lodz", "Łukasz mieszka w Łodzi."), Document("tea", "Herbata jest gorąca.")]
    fitted = reatt().fit(Dataset.of("polish", documents))
    [answer] = fitted.ask_many(["gdzie mieszka Łukasz"])
    shown = [word for source in answer.sources for pair in source.matches for word in pair[:2]]
    explained = [name for parts in fitted.explain("gdzie mieszka Łukasz", 1).parts for name, _ in parts]
    for words in (shown, explained):
        assert "ł" in "".join(words)
        assert not {"Å", "Ł"} & {*"".join(words)}  # the letter that stands for the first byte of ł


def test_words_are_linked_with_themselves() -> None:
    explanation = BM25().fit(dataset()).explain("boiling boiling dough for water", 3)
    panel = matches(explanation)
    assert panel.query == ("boil", "dough", "water")
    for hit, parts, found in zip(explanation.result, explanation.parts, panel.hits, strict=True):
        assert {panel.query[left]: score for left, _, score in found.links} == dict(parts)
        assert [panel.query[left] for left, *_ in found.links] == [found.document[right] for _, right, _ in found.links]
        assert sum(found.weights) == pytest.approx(hit.score, abs=1e-4)


def titles(join: str) -> Contextual:
    spelling = SpellingOptions(join=join)  # ty: ignore[invalid-argument-type]
    return Contextual(backbone=TINY, training=NOTHING, vocabulary=VocabularyOptions(k=2), spelling=spelling).fit(
        dataset()
    )


@pytest.mark.parametrize("join", quick("max", of=["max", "regenerate"]))
def test_titles_by_their_best_path_are_explained_in_spellings(join: str) -> None:
    explanation = titles(join).explain(QUERIES[0], 3)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)
    panel = beam(explanation)
    assert "several spellings" in panel.about
    best: dict[str, float] = {}
    for level in panel.levels:
        for prefix in level.prefixes:
            if prefix.outcome == "ended":
                best |= {name: max(prefix.logprob, best.get(name, -np.inf)) for name in prefix.hits}
    assert best == pytest.approx({hit.id: hit.score for hit in explanation.result}, abs=1e-4)
    assert any("(2)" in prefix.symbol for level in panel.levels for prefix in level.prefixes)


def written() -> Generative:
    symbols = DecoderOptions(rows="symbols")
    return Generative(docids=Semantic(branch=3, leaf=5), backbone=TINY, training=NOTHING, decoder=symbols).fit(
        dataset()
    )


def test_a_beam_shows_the_docids_and_probabilities_of_its_hits() -> None:
    fitted = written()
    for method in ("beam", "exact"):
        explanation = fitted.searching(method=method, width=2, normalisation="trie").explain("boiling water", 3)
        panel = beam(explanation)
        assert (panel.method, panel.normalisation) == (method, "trie")
        paths = dict(panel.paths)
        ended = {name: prefix for level in panel.levels for prefix in level.prefixes for name in prefix.hits}
        for hit in explanation.result:
            assert ended[hit.id].logprob == pytest.approx(hit.score, abs=1e-4)
            assert ended[hit.id].prefix == paths[hit.id][: len(ended[hit.id].prefix)]
            assert fitted.browse(paths[hit.id]).samples[0][0] == hit.id


def test_a_beam_is_printed_in_a_few_lines() -> None:
    explanation = written().searching(width=2).explain("boiling water", 2)
    first, *lines = str(beam(explanation)).split("\n")
    assert first.startswith("beam, the best prefixes of each length")
    assert first.endswith(f"* leads to {explanation.result[0].id}")
    assert [line.count("*") for line in lines] == [1] * len(lines)
    assert len(lines) == len(beam(explanation).levels)
    assert str(explanation).endswith(lines[-1])


def test_a_composite_shows_the_panels_of_its_parts() -> None:
    title = Generative(
        docids=Title(vocabulary=100), backbone=TINY, training=NOTHING, decoder=DecoderOptions(rows="symbols")
    )
    fused = Fused(systems=["bm25", title]).fit(dataset())
    panels = fused.explain(QUERIES[0], 3).panels
    assert [panel.kind for panel in panels] == ["matches", "beam"]
    assert [panel.system for panel in panels] == list(fused.engine.names)


def test_a_token_that_a_text_does_not_have_is_unknown() -> None:
    hit = matched("a", [0, 2, -1], [0.5, 0.25, 9.0], ["tea"])
    assert (hit.document, hit.weights) == (("tea", "?", "?"), (0.5, 0.0, 0.25))
    assert hit.links == ((0, 0, 0.5), (1, 2, 0.25))
