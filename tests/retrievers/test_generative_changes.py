"""Any sequence of adds, deletes and saves, against a plain forward pass for each docid that should be there."""

from __future__ import annotations

import copy
import tempfile
from collections import defaultdict
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, dataset
from tests.retrievers.test_generative import engine_of, generative
from triever import Document
from triever.docids.schemes import Docid, Scheme
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import Docids
from triever.models.encoder import encode
from triever.models.tokens import Tokens
from triever.retrievers.generative import Generative

QUERY = "boiling water for tea leaves"
FITTED = DOCUMENTS[:6]


@cache
def fitted(scheme: str) -> Generative:
    tiny = "scratch:hidden=32,layers=1,heads=2,vocabulary=600"
    return generative(scheme, backbone=tiny, search_options=SearchOptions(normalisation="trie")).fit(dataset(FITTED))


def placed(scheme: Scheme, engine: Docids, documents: list[Document]) -> dict[str, Docid]:
    """The docids that a scheme gives to new documents, by their vectors."""
    assert engine.placer is not None
    tokens = Tokens.of((one.full_text for one in documents), engine.placer.tokenizer, engine.reading.document_length)
    vectors = torch.from_numpy(encode(engine.placer, tokens))
    return {one.id: scheme.place(one, vector) for one, vector in zip(documents, vectors, strict=True)}


@torch.inference_mode()
def enumerated(engine: Docids, docids: dict[str, Docid]) -> dict[str, float]:
    """The log-probability of every document: a whole forward pass for each, over the symbols that exist."""
    following: dict[Docid, set[int]] = defaultdict(set)
    for docid in docids.values():
        for depth, symbol in enumerate(docid):
            following[docid[:depth]].add(symbol)
    ids = torch.tensor(engine.model.encoder.tokenizer.ids([QUERY], 64))
    found = {}
    for name, docid in docids.items():
        scores = engine.model(ids, torch.ones_like(ids), torch.tensor([docid]))[0].double()
        total = -torch.tensor(list(docids.values()).count(docid)).double().log()
        for depth, symbol in enumerate(docid):
            total += scores[depth, symbol] - scores[depth, sorted(following[docid[:depth]])].logsumexp(0)
        found[name] = float(total)
    return found


@pytest.mark.long
@pytest.mark.parametrize("scheme", quick("semantic", of=["atomic", "semantic"]))
@settings(max_examples=12)
@given(steps=st.lists(st.one_of(st.just("save"), st.sets(st.integers(0, 9), min_size=1, max_size=5)), max_size=7))
def test_whatever_is_added_deleted_and_saved_scores_are_those_of_the_documents_that_are_there(
    scheme: str, steps: list[str | set[int]]
) -> None:
    retriever: triever.Retriever = copy.copy(fitted(scheme))
    own = copy.deepcopy(engine_of(retriever).scheme)  # which goes through the same adds, and through no save
    docids = {one.id: engine_of(retriever).docid(row) for row, one in enumerate(FITTED)}
    for step in steps:
        if isinstance(step, str):
            with tempfile.TemporaryDirectory() as folder:
                retriever.save(f"{folder}/m")
                retriever = triever.load(f"{folder}/m")
        else:  # those that are there go, and the others come
            chosen = [DOCUMENTS[number] for number in sorted(step)]
            gone = [one.id for one in chosen if one.id in docids]
            new = [one for one in chosen if one.id not in docids]
            retriever.delete(gone)
            retriever.add(new)
            docids = {name: docid for name, docid in docids.items() if name not in gone}
            docids |= placed(own, engine_of(retriever), new)
        found = {hit.id: hit.score for hit in retriever.search(QUERY, len(DOCUMENTS))}
        assert found == pytest.approx(enumerated(engine_of(retriever), docids), abs=1e-4)
