"""How well each attention head tells relevant documents from others, before or after a training.

For each question some documents are found by another retriever, each head says how relevant each is, and that is
correlated with the judgements, over all pairs. A head that knows nothing has a correlation of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triever.data.datasets import Dataset
from triever.data.records import Document, Query
from triever.data.store import DocumentStore
from triever.engines.answers import AnswerReader
from triever.engines.attention import AttentionEngine, ReadTexts
from triever.errors import UsageError
from triever.evaluation.compare import questions
from triever.learning.answering import AnsweringRetriever
from triever.models.precision import computing_fast
from triever.printable import an
from triever.progress import track
from triever.retriever import Retriever
from triever.retrievers.bm25 import BM25


@dataclass(frozen=True)
class Heads:
    """The correlation of each head's relevance with judgements, the head that the model uses, and what was compared."""

    correlations: tuple[float, ...]
    chosen: int | None  # None where documents are found by other means
    pairs: int
    queries: int

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return {
            "correlations": [round(value, 4) for value in self.correlations],
            "chosen": self.chosen,
            "pairs": self.pairs,
            "queries": self.queries,
        }

    def rows(self) -> list[dict[str, object]]:
        """A row for each head, the best first."""
        order = sorted(range(len(self.correlations)), key=lambda head: -self.correlations[head])
        return [
            {"head": head, "correlation": self.correlations[head], "chosen": "yes" if head == self.chosen else ""}
            for head in order
        ]


def heads(retriever: Retriever, dataset: Dataset, split: str, *, depth: int = 100, most: int = 200) -> Heads:
    """The correlations on the first `most` questions of a split, with `depth` documents of BM25 for each."""
    if not isinstance(retriever, AnsweringRetriever) or not isinstance(retriever.engine.reader, AnswerReader):
        problem = f"{an(retriever.kind)} retriever has no attention that finds documents"
        raise UsageError(problem, "make one with: triever fit reatt")
    asked, qrels = questions(dataset, split)
    asked = asked[:most]
    found = BM25(expand=False).fit(dataset).search_many(asked, depth)
    texts, store = retriever.engine.reader.texts, DocumentStore.of(dataset.documents())
    scores, relevant = [], []
    for query, result in track([*zip(asked, found, strict=True)], "reading", unit="questions"):
        if not len(result):
            continue
        scores.append(_relevance(texts, query, [store.document(hit.id) for hit in result]))
        judged = qrels[query.id]
        relevant.append(np.array([judged.get(hit.id, 0) > 0 for hit in result], float))
    every, right = np.concatenate(scores, 1), np.concatenate(relevant)
    if right.std() == 0:
        share = "all" if right.any() else "none"
        problem = f"{share} of the {len(right):,} documents that BM25 finds for {len(asked):,} questions are relevant"
        raise UsageError(problem, "take another split, or more questions")
    correlations = tuple(_correlation(of_head, right) for of_head in every)
    chosen = texts.model.retrieval_head if isinstance(retriever.engine.first, AttentionEngine) else None
    return Heads(correlations, chosen, len(right), len(asked))


@torch.inference_mode()
def _relevance(texts: ReadTexts, query: Query, documents: Sequence[Document]) -> np.ndarray:
    """(heads, documents) how relevant each head finds documents."""
    model = texts.model
    both = texts.questions([query.text]), texts.documents(documents)
    parts = [tokens.all_padded(model.tokenizer.pad) for tokens in both]
    (ids, mask), (held, held_mask) = ((part.to(model.device) for part in pair) for pair in parts)
    with computing_fast(model.device):
        asked, states = model.query_states(ids, mask), model.document_states(held, held_mask)
        return model.relevance(asked, mask, states, held_mask)[:, 0].float().cpu().numpy()


def _correlation(scores: np.ndarray, right: np.ndarray) -> float:
    """Pearson's correlation of scores with 0 and 1; zero where all scores are the same."""
    return float(np.corrcoef(scores, right)[0, 1]) if scores.std() > 0 else 0.0
