"""Batches of questions with close documents and answers, for retrieval as attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from triever.models.tokens import TextTokenizer, Tokens
from triever.training.views import docid_rows


def answer_rows(texts: Sequence[str], tokenizer: TextTokenizer, limit: int) -> np.ndarray:
    """(answers, longest) at most `limit` tokens of each answer, its end among them, negative behind it."""
    end = tokenizer.after[-1]
    return docid_rows([[*ids, end] for ids in tokenizer.ids(texts, limit - 1, special=False)])


def reading_batch(
    questions: Tokens,
    numbers: np.ndarray,
    documents: Tokens,
    close: np.ndarray,
    answers: np.ndarray,
    *,
    pad: int,
) -> dict[str, Tensor]:
    """A batch of the questions with these numbers (n,), and for each its close documents and its answer.

    close (n, K) holds rows of documents, -1 where there are no more. A document that is close to several questions is
    close to each, and random to none of them. answers (n, longest) is as `answer_rows` makes
    them. All tensors begin with the questions, so several processes can share a batch.
    """
    query_ids, query_mask = questions.padded(numbers, pad)
    ids, mask = documents.padded(np.maximum(close, 0).ravel(), pad)
    shape, rows = (*close.shape, ids.shape[1]), torch.from_numpy(np.asarray(close, np.int64))
    return {
        "query_ids": query_ids,
        "query_mask": query_mask,
        "document_ids": ids.view(shape),
        "document_mask": mask.view(shape) * (rows >= 0)[:, :, None],
        "document_rows": rows,
        "answers": torch.from_numpy(np.asarray(answers, np.int64)),
    }
