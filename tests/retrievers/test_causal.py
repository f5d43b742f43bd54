"""Generative retrieval with a causal language model, judged by transformers' own passes over text and docid."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import triever
from tests.marks import quick
from tests.models.causal import save_causal
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import GDR, Atomic, Contextual, DecoderOptions, DocidTuning, Generative, Naive, SearchOptions, UsageError
from triever.docids.schemes import Scheme
from triever.models.causal import CausalDecoder

TEXTS = [document.full_text for document in DOCUMENTS]


@pytest.fixture(scope="module", params=quick("llama", of=["llama", "gpt2"]))
def backbone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_causal(tmp_path_factory.mktemp(request.param), request.param, TEXTS))


def causal(backbone: str, docids: Scheme, steps: int = 0, **options: object) -> Generative:
    training = DocidTuning(steps=steps, batch=8, rounds=1, learning_rate=3e-3, holdout=0.0)
    return Generative(backbone=backbone, docids=docids, training=training, **options)  # ty: ignore[invalid-argument-type]


@pytest.mark.parametrize("scheme", ["atomic", "naive"])
def test_scores_are_those_of_transformers_for_the_text_and_the_docid_behind_it(backbone: str, scheme: str) -> None:
    docids = Atomic() if scheme == "atomic" else Naive()
    wide = SearchOptions(normalisation="vocabulary", width=50)
    fitted = causal(backbone, docids, steps=3, search_options=wide).fit(dataset())
    engine = fitted.engine.docids
    model = engine.model
    assert isinstance(model, CausalDecoder)
    language_model = model.encoder.module
    for query in QUERIES:
        hits = {hit.id: hit.score for hit in fitted.search(query, len(DOCUMENTS))}
        ids = torch.tensor(model.encoder.tokenizer.ids([query.text], 64))
        for row, document in enumerate(DOCUMENTS):
            docid = torch.tensor([engine.docid(row)])
            with torch.inference_mode():
                words = language_model.get_input_embeddings()(ids)  # ty: ignore[call-non-callable]
                rows = torch.cat([words, model.symbols.weight[docid[:, :-1]]], 1)
                states = language_model(inputs_embeds=rows).last_hidden_state[:, ids.shape[1] - 1 :]
                each = (states @ model.output.weight.T).log_softmax(2)[0].gather(1, docid.T)
            assert hits[document.id] == pytest.approx(float(each.sum()), abs=1e-3)


def test_padding_beside_longer_texts_changes_nothing(backbone: str) -> None:
    model = causal(backbone, Naive()).fit(dataset()).engine.docids.model
    short, both = model.tokenise(["tea"], 64), model.tokenise(["tea", QUERIES[0].text * 3], 64)
    targets = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        alone, beside = model(*short, targets), model(*both, targets.repeat(2, 1))[:1]
    torch.testing.assert_close(alone, beside, atol=1e-4, rtol=1e-4)


def test_before_training_atomic_docids_rank_as_dense_retrieval(backbone: str) -> None:
    dense = triever.Dense(backbone=backbone).fit(dataset()).search_many(QUERIES, 10)
    written = causal(backbone, Atomic()).fit(dataset()).search_many(QUERIES, 10)
    assert [[hit.id for hit in result] for result in written] == [[hit.id for hit in result] for result in dense]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_causal(tmp_path_factory.mktemp("causal"), "llama", TEXTS))


class TestCausal(Contract):
    @pytest.fixture(autouse=True)
    def folder(self, llama: str) -> None:
        self.backbone = llama

    def make(self) -> triever.Retriever:
        return causal(self.backbone, Atomic(), steps=20)


def test_training_teaches_the_docids_of_queries(backbone: str) -> None:
    fitted = causal(backbone, Naive(), steps=80).fit(dataset())
    for query in QUERIES:
        relevant = dataset().qrels("train").get(query.id, {})
        assert not relevant or fitted.search(query, 1).hits[0].id in relevant


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda name: GDR(backbone=name), "is a causal model, but this decoder attends"),
        (lambda name: Contextual(backbone=name), "is a causal model, but this decoder attends"),
        (
            lambda name: Generative(backbone=name, decoder=DecoderOptions(copy=True)),
            "decoder.copy needs a backbone like BERT",
        ),
        (lambda name: Generative(backbone=name, decoder=DecoderOptions(begin="mean")), "which continues the text"),
    ],
)
def test_what_a_causal_model_cannot_do_is_refused_at_once(
    make: object, message: str, tmp_path: Path, backbone: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make(backbone).fit(dataset(), work=tmp_path / "work")  # ty: ignore[call-non-callable]
