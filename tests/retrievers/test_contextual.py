"""Contextualized generative retrieval: the contract, and titles against the sum over all ways to spell them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import Document, Result, disk_arrays
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import Docids
from triever.engines.titles import TitleEngine
from triever.errors import UsageError
from triever.learning.docid_views import query_tokens
from triever.learning.docids import DocidTeaching
from triever.models.backbones import learn_tokenizer
from triever.models.docid_model import SHARP, words_of
from triever.retrievers import contextual as contextual_module
from triever.retrievers.contextual import Contextual, ContrastTuning, SpellingOptions, VocabularyOptions
from triever.training.tuning import DocidTuning
from triever.training.views import IGNORED, ViewOptions

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=400"
NOTHING = DocidTuning(steps=0)
LEARN = DocidTuning(steps=300, batch=8, rounds=3, learning_rate=3e-3, holdout=0.0, reader=1.0)
BOTH = ViewOptions(names=("labelled", "chunks"), length=12)
CONTRACT = replace(LEARN, steps=45, add_steps=45, learning_rate=1e-2, seed=1)
SHARING = {document.id: sum(other.title == document.title for other in DOCUMENTS) for document in DOCUMENTS}
OVER_ALL = SearchOptions(width=64, normalisation="vocabulary")


def contextual(**options: object) -> Contextual:
    given = {"backbone": SMALL, "training": NOTHING, "search_options": SearchOptions(width=64)}
    return Contextual(**given | options)  # ty: ignore[invalid-argument-type]


class TestBase(Contract):
    def make(self) -> triever.Retriever:
        return contextual(training=CONTRACT, views=BOTH)


@pytest.mark.long
class TestGenre(Contract):
    def make(self) -> triever.Retriever:
        return contextual(training=CONTRACT, views=BOTH, vocabulary=VocabularyOptions(k=0))


def engine_of(fitted: Contextual) -> TitleEngine:
    engine = fitted.engine
    assert isinstance(engine, TitleEngine)
    return engine


def spelled(fitted: Contextual, query: str, document: int) -> list[float]:
    """The probabilities of all ways to spell a document's title."""
    engine = engine_of(fitted)
    known = engine.vocabulary
    assert known is not None
    ids, mask = query_tokens(engine.docids, [query]).padded([0], 0)
    ways = itertools.product(
        *(range(known.start[one], known.start[one] + known.count[one]) for one in engine.docids.docid(document))
    )
    symbols = torch.tensor(list(ways))
    ids, mask = (one.expand(len(symbols), -1) for one in (ids, mask))
    with torch.inference_mode():
        each = engine.docids.model(ids, mask, symbols).log_softmax(2).gather(2, symbols[:, :, None])
    return each.sum((1, 2)).exp().tolist()


@pytest.mark.parametrize("join", ["sum", "max"])
def test_a_title_has_the_probability_of_all_ways_to_spell_it_or_of_the_best(join: str) -> None:
    spelling = SpellingOptions(paths=200, join=join)  # ty: ignore[invalid-argument-type]
    fitted = contextual(search_options=OVER_ALL, vocabulary=VocabularyOptions(k=2), spelling=spelling).fit(dataset())
    for hit in fitted.search(QUERIES[0], 3):
        ways = spelled(fitted, QUERIES[0].text, fitted.documents.row(hit.id))
        expected = sum(ways) / SHARING[hit.id] if join == "sum" else max(ways)
        assert np.exp(hit.score) == pytest.approx(expected, rel=1e-3)


def test_few_paths_are_a_lower_bound() -> None:
    options = {"search_options": OVER_ALL, "vocabulary": VocabularyOptions(k=3)}
    fitted = contextual(**options).fit(dataset())
    few = fitted.searched_with({"spelling": {"paths": 1}})
    many = {hit.id: hit.score for hit in fitted.searched_with({"spelling": {"paths": 200}}).search(QUERIES[0], 20)}
    assert all(hit.score <= many[hit.id] + 1e-4 for hit in few.search(QUERIES[0], 20))


@pytest.mark.long
def test_exact_follows_all_spellings_whatever_a_beam_would_and_a_beam_says_what_it_leaves_out() -> None:
    options = {"search_options": OVER_ALL, "vocabulary": VocabularyOptions(k=3), "training": replace(LEARN, steps=60)}
    fitted = contextual(**options).fit(dataset())
    few = fitted.searched_with({"spelling": {"paths": 1}})
    assert "1 spellings of each prefix at most: a lower bound of" in few.search(QUERIES[0], 3).note
    over_trie = few.searched_with({"search_options": {"normalisation": "trie"}})
    assert "at most: near" in over_trie.search(QUERIES[0], 3).note
    certain = few.searched_with({"search_options": {"method": "exact"}}).search(QUERIES[0], 3)
    assert certain.certificate.startswith("exact: ")
    for hit in certain:
        ways = spelled(fitted, QUERIES[0].text, fitted.documents.row(hit.id))
        assert np.exp(hit.score) == pytest.approx(sum(ways) / SHARING[hit.id], rel=1e-3)
    with pytest.raises(UsageError, match="adds up all spellings"):
        contextual(search_options=SearchOptions(method="exact"), spelling=SpellingOptions(join="max"))


def test_training_learns_the_titles_of_queries() -> None:
    fitted = contextual(training=replace(LEARN, steps=90, learning_rate=1e-2)).fit(dataset())
    assert [result[0].id for result in fitted.search_many(QUERIES, 1)] == ["tea", "bike", "東京", "bread"]
    regenerated = fitted.searched_with({"spelling": {"join": "regenerate"}})
    assert [result[0].id for result in regenerated.search_many(QUERIES, 1)] == ["tea", "bike", "東京", "bread"]


@pytest.mark.long
def test_a_regenerated_query_finds_the_same_alone_and_among_others() -> None:
    narrow = {"search_options": {"width": 2}, "spelling": {"join": "regenerate"}}
    fitted = contextual(training=replace(LEARN, steps=60)).fit(dataset()).searched_with(narrow)
    together = fitted.search_many(QUERIES, 3)
    for query, result in zip(QUERIES, together, strict=True):
        alone = fitted.search(query, 3)
        assert [hit.id for hit in result] == [hit.id for hit in alone]
        assert len(result) == 3, "a wider beam is tried for those that had fewer"


def length(rows: torch.Tensor) -> float:
    return float(rows.square().sum(1).mean().sqrt())


def test_ends_and_beginnings_are_as_long_as_the_states_of_tokens_and_can_be_written() -> None:
    fitted = contextual().fit(dataset())
    engine = engine_of(fitted)
    known, model = engine.vocabulary, engine.docids.model
    assert known is not None
    assert engine.docids.scheme.stop is not None
    end = int(known.start[engine.docids.scheme.stop])
    others = torch.cat([known.rows[:end], known.rows[end + 1 :]])
    for row in (known.rows[end], model.symbols.weight[-1]):
        assert float(row.norm()) == pytest.approx(length(others), rel=0.05)
    scores = model.logits(known.rows[end][None])[0]
    assert int(scores.argmax()) == end
    assert float(scores[end]) == pytest.approx(SHARP, rel=0.05)


def test_rows_are_read_as_long_as_words_and_states_begin_equally_sharp_for_both_vocabularies() -> None:
    """So that a decoder feels places as it did, and what is compared differs in nothing but its vocabulary."""
    base, genre = (engine_of(contextual(vocabulary=VocabularyOptions(k=k)).fit(dataset())).docids.model for k in (5, 0))
    words = words_of(base.encoder)
    assert base.shape.entering * length(base.symbols.weight) == pytest.approx(length(words), rel=1e-3)
    assert genre.shape.entering == 1
    written = length(base.symbols.weight[:-2])  # as long as the states of titles, which ids are the means of
    for model, rows in ((base, base.symbols.weight), (genre, words)):
        assert model.shape.scale * written * length(rows) == pytest.approx(SHARP, rel=0.1)


def test_a_vocabulary_of_tokens_places_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = contextual(vocabulary=VocabularyOptions(k=0)).fit(dataset())
    assert engine_of(fitted).docids.placer is None
    assert not fitted.memory.get("placer")
    for k in (0, 5):
        fitted = contextual(vocabulary=VocabularyOptions(k=k)).fit(dataset())
        monkeypatch.setattr(Docids, "vectors", lambda *_: pytest.fail("titles need no vectors"))
        fitted.add([Document("new", "Molten rock rises.", "Volcanoes")])
        assert "new" in {hit.id for hit in fitted.search("volcano", len(fitted))}


@pytest.mark.parametrize("k", [0, 2])
def test_a_t5_may_have_rows_for_more_tokens_than_its_tokenizer_knows(k: int, tmp_path: Path) -> None:
    learned = learn_tokenizer([document.full_text for document in DOCUMENTS], 300)
    fast = PreTrainedTokenizerFast(tokenizer_object=learned._tokenizer, pad_token="[PAD]", eos_token="[SEP]")
    fast.save_pretrained(tmp_path)
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 32, "num_layers": 1}
    T5ForConditionalGeneration(T5Config(vocab_size=len(fast) + 12, decoder_start_token_id=0, **sizes)).save_pretrained(
        tmp_path
    )
    fitted = contextual(backbone=str(tmp_path), vocabulary=VocabularyOptions(k=k)).fit(dataset())
    assert len(fitted.search(QUERIES[0], 3)) == 3


def test_the_matrix_is_not_trained_and_the_rest_is() -> None:
    few = replace(LEARN, steps=6)
    before, after = (engine_of(contextual(training=one).fit(dataset())).docids.model for one in (NOTHING, few))
    assert before.symbols.weight.equal(after.symbols.weight)
    assert "symbols.weight" not in dict(after.named_parameters())
    moved = [name for name, one in after.named_parameters() if not one.equal(before.get_parameter(name))]
    assert any(name.startswith("reader.") for name in moved)
    assert any(name.startswith("layers.") for name in moved)


def test_context_is_the_document_or_the_title_alone() -> None:
    """Two documents with one title: what they say tells their tokens apart, and alone their titles do not."""
    same = [Document("a", "the sea rises and falls", "Tide"), Document("b", "a powder for clothes", "Tide")]
    for context, differ in (("document", True), ("title", False)):
        options = VocabularyOptions(context=context)  # ty: ignore[invalid-argument-type]
        fitted = contextual(vocabulary=options).fit(triever.Dataset.of("two", same, [], {}))
        engine = engine_of(fitted)
        one, other = fitted._targets(engine, same, [engine.docids.docid(0), engine.docids.docid(1)])
        assert (one != other) == differ
        assert engine.docids.docid(0) == engine.docids.docid(1)


PASSAGES = [
    Document("p1", "the sea rises and falls with the moon", "Tide"),
    Document("p2", "it comes twice a day", "Tide"),
    Document("p3", "and once a month it is highest", "Tide"),
    Document("p4", "a powder for clothes", "Soap"),
    Document("p5", "leaves and boiling water", "Tea"),
]


@pytest.mark.parametrize(("k", "join"), [(0, "sum"), (5, "sum"), (5, "max"), (5, "regenerate")])
def test_passages_of_one_title_tie_and_are_counted_like_any_others(k: int, join: str) -> None:
    options = {"vocabulary": VocabularyOptions(k=k), "spelling": SpellingOptions(join=join)}  # ty: ignore
    fitted = contextual(**options).fit(triever.Dataset.of("passages", PASSAGES, [], {}))
    result = fitted.search("when is the sea highest", 5)
    assert {hit.id for hit in result} == {document.id for document in PASSAGES}
    tide = [hit for hit in result if hit.id in ("p1", "p2", "p3")]
    assert [hit.id for hit in tide] == ["p3", "p2", "p1"], "of those that tie, the larger id comes first"
    assert len({(hit.score, hit.docid) for hit in tide}) == 1
    for relevant, expected in (("p3", 1), ("p1", 0), ("p2 p3", 1), ("p1 p3", 1 / 2), ("p1 p2", 1 / 2), ("p1 p2 p3", 1)):
        found = {"q": Result(tuple(tide))}  # as if the title were found first
        report = triever.evaluate(found, {"q": dict.fromkeys(relevant.split(), 1)}, ["Rprec"])
        assert report.scores["run"]["Rprec"].mean == expected


def test_states_that_are_too_many_for_memory_lie_in_a_file_and_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"training": replace(LEARN, steps=6, rounds=3), "vocabulary": VocabularyOptions(k=2, every=1)}
    held = engine_of(contextual(**options).fit(dataset()))
    nameless, folders = disk_arrays.nameless, []
    monkeypatch.setattr(disk_arrays, "nameless", lambda *given: (folders.append(given[0]), nameless(*given))[1])
    monkeypatch.setattr(disk_arrays, "IN_MEMORY", 64)
    mapped = engine_of(contextual(**options).fit(dataset(), work=tmp_path))
    inside = [folder for folder in folders if folder]  # the others are for the documents that are read together
    assert len(inside) == 3, "at first, and before the second and the third round"
    assert all(folder.is_relative_to(tmp_path) for folder in inside)
    assert held.vocabulary is not None
    assert mapped.vocabulary is not None
    assert mapped.vocabulary.rows.equal(held.vocabulary.rows)
    assert np.array_equal(mapped.vocabulary.start, held.vocabulary.start)
    assert same_weights(mapped.docids.model, held.docids.model)


def test_replacing_the_encoder_by_itself_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reader that learns nothing, an Async training is a Base training, to the last bit."""
    still = DocidTuning(steps=30, batch=8, rounds=3, learning_rate=3e-3, holdout=0.0, reader=0.0)
    # A backbone with a name of its own: one that begins anew always learns.
    base = Contextual(backbone=SMALL, training=still)
    moving = Contextual(backbone=SMALL, training=still, vocabulary=VocabularyOptions(every=1))
    monkeypatch.setattr(DocidTeaching, "rate_share", lambda _self, model, _options: _frozen(model))
    one, other = (engine_of(each.fit(dataset())).docids.model.state_dict() for each in (base, moving))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


def _frozen(model: torch.nn.Module) -> object:
    model.reader.requires_grad_(False)  # ty: ignore[call-non-callable]
    return lambda _name: 1.0


def test_async_makes_the_vocabulary_anew_with_the_encoder_as_trained_until_then() -> None:
    short = replace(LEARN, steps=10, rounds=2)
    base, moving = (
        contextual(training=short, vocabulary=VocabularyOptions(every=every)).fit(dataset()) for every in (0, 1)
    )
    one, other = (engine_of(each) for each in (base, moving))
    assert one.docids.placer is not None
    assert other.docids.placer is not None
    assert not same_weights(one.docids.placer, other.docids.placer)
    assert not same_weights(other.docids.placer, other.docids.model.reader), "it was trained on after that"
    docids = [other.docids.docid(row) for row in range(len(DOCUMENTS))]
    states = other.titles.states(other.docids.placer, DOCUMENTS, docids)
    ids = [one for target in moving._targets(other, DOCUMENTS, docids) for one in target[:-1]]
    known = other.vocabulary
    assert known is not None
    for number in set(ids):
        here = [place for place, one in enumerate(ids) if one == number]
        torch.testing.assert_close(known.rows[number], torch.from_numpy(states[here].astype(np.float32)).mean(0))
    assert known.rows.data_ptr() == other.docids.model.symbols.weight.data_ptr()


def test_an_interrupted_async_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    options = {"training": replace(LEARN, steps=9), "vocabulary": VocabularyOptions(every=1)}
    whole = engine_of(contextual(**options).fit(dataset(), work=tmp_path / "whole")).docids.model.state_dict()

    class Stop(Exception):
        pass

    stopped = contextual(**options)
    remade, calls = stopped._remade, []

    def interrupted(*given: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise Stop
        return remade(*given, **more)  # ty: ignore[invalid-argument-type]

    stopped._remade = interrupted  # ty: ignore[invalid-assignment]
    with pytest.raises(Stop):
        stopped.fit(dataset(), work=tmp_path / "cut")
    resumed = engine_of(contextual(**options).fit(dataset(), work=tmp_path / "cut")).docids.model.state_dict()
    assert all(whole[name].equal(resumed[name]) for name in whole)


def test_new_titles_are_spelled_with_what_is_there_and_new_tokens_get_ids() -> None:
    fitted = contextual().fit(dataset())
    before = engine_of(fitted)
    assert before.vocabulary is not None
    size = len(before.vocabulary)
    fitted.add([Document("new", "zebras run", "Zzyzx quagga"), Document("like", DOCUMENTS[0].text, DOCUMENTS[0].title)])
    after = engine_of(fitted)
    assert after.vocabulary is not None
    assert len(after.vocabulary) > size
    assert len(before.vocabulary) == size, "searches that go on hold the old one"
    kept = before.docids.model.symbols.weight[:-1]
    assert after.docids.model.symbols.weight[: len(kept)].equal(kept)
    known, new = (
        fitted._targets(after, [document], [after.docids.scheme.place(document)])[0]
        for document in (DOCUMENTS[0], Document("like", DOCUMENTS[0].text, DOCUMENTS[0].title))
    )
    assert known == new
    assert IGNORED not in known


def test_mistakes_are_said() -> None:
    for options, message in (
        ({"docids": "semantic"}, "but contextual writes titles"),
        ({"vocabulary": {"k": -1}}, "k and every to 0 or more"),
        ({"spelling": {"paths": 0}}, "above zero"),
        ({"vocabulary": {"k": 0}, "contrast": {"steps": 3}}, "no ids to contrast"),
    ):
        with pytest.raises(UsageError, match=message):
            triever.config.build(Contextual, options)


def test_without_questions_it_says_what_else_can_be_learned_from() -> None:
    data = triever.Dataset.of("bare", PASSAGES)
    with pytest.raises(UsageError, match=r"bare has no split 'train'.* views\.names=chunks"):
        contextual(training=LEARN).fit(data)


@pytest.mark.parametrize("loss", ["batch+single", "matrix+single", "matrix+multiple"])
def test_a_contrastive_training_comes_first_and_gives_its_encoder_to_the_vocabulary(loss: str) -> None:
    first = ContrastTuning(steps=6, batch=8, learning_rate=3e-3, holdout=0.0, reader=1.0, loss=loss)  # ty: ignore
    before, after = (engine_of(contextual(contrast=one).fit(dataset())) for one in (ContrastTuning(), first))
    assert before.docids.placer is not None
    assert after.docids.placer is not None
    assert not same_weights(before.docids.placer, after.docids.placer)
    assert same_weights(after.docids.placer, after.docids.model.reader), "of the second training, which has not begun"
    assert before.docids.model.symbols.weight.shape == after.docids.model.symbols.weight.shape
    again = contextual().fit(dataset())
    docids = [after.docids.docid(row) for row in range(len(DOCUMENTS))]
    made = again._clustered(after, docids, after.titles.states(after.docids.placer, DOCUMENTS, docids), None)
    assert made.rows.equal(after.docids.model.symbols.weight[:-1])


def test_a_contrastive_training_may_leave_the_vocabulary_as_it_is() -> None:
    first = ContrastTuning(steps=3, batch=8, holdout=0.0, reader=1.0, anew=False)
    before, after = (engine_of(contextual(contrast=one).fit(dataset())) for one in (ContrastTuning(), first))
    assert before.docids.placer is not None
    assert after.docids.placer is not None
    assert same_weights(before.docids.placer, after.docids.placer)
    assert before.docids.model.symbols.weight.equal(after.docids.model.symbols.weight)
    assert not same_weights(before.docids.model.reader, after.docids.model.reader), "it was trained nevertheless"


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    theirs = other.state_dict()
    return all(weight.equal(theirs[name]) for name, weight in one.state_dict().items())


def test_contrast_makes_the_ids_of_the_right_title_likely() -> None:
    first = ContrastTuning(steps=60, batch=8, learning_rate=3e-3, holdout=0.0, reader=1.0)
    fitted = contextual(contrast=first)
    losses = []
    loss_of = contextual_module._contrast

    def watched(*given: object) -> object:
        found = loss_of(*given)  # ty: ignore[invalid-argument-type]
        losses.append(found["contrast"].item())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contextual_module, "_contrast", watched)
        fitted.fit(dataset())
    assert losses[-1] < 0.4 * losses[0]
