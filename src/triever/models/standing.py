"""Answers that stand in a document word for word: what may follow what was written so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from triever.models.tokens import TextTokenizer
from triever.models.word_edges import WordEdges


@dataclass(frozen=True)
class Standing:
    """Where what was written so far stands in documents, and so what may follow it: an answer has whole words."""

    ids: Tensor  # (rows, length) what was read
    follows: Tensor  # (rows, length) whether a token of a document is the next one
    allowed: Tensor  # (rows, length) whether a token may be written at all
    may_end: Tensor  # (rows, length) whether an answer may end with a token
    ended: Tensor  # (rows,) whether what was written so far may be all, or nothing can follow it
    end: int  # the token that says so

    @classmethod
    def anywhere(cls, ids: Tensor, is_document: Tensor, tokenizer: TextTokenizer, end: int) -> Standing:
        """Nothing is written yet: an answer begins and ends where words of a document do, within its frame."""
        frame = torch.tensor([*tokenizer.before, *tokenizer.after], dtype=ids.dtype, device=ids.device)
        allowed = is_document & ~torch.isin(ids, frame)
        edges = WordEdges.of(ids, allowed, tokenizer)
        return cls(ids, edges.begin, allowed, edges.end, ~edges.begin.any(1), end)

    def left(self, scores: Tensor) -> Tensor:
        """Scores of all words (rows, words), of which only those are left that may follow."""
        may = torch.zeros_like(scores, dtype=torch.long).scatter_add(1, self.ids, self.follows.long()) > 0
        may[:, self.end] = self.ended
        return scores.masked_fill(~may, -torch.inf)

    def behind(self, chosen: Tensor) -> Standing:
        """Where it stands after one more token (rows,)."""
        here = self.follows & (self.ids == chosen[:, None])
        follows = functional.pad(here, (1, 0))[:, :-1] & self.allowed
        return replace(self, follows=follows, ended=(here & self.may_end).any(1) | ~follows.any(1))

    def take(self, rows: Tensor) -> Standing:
        """Some of the rows."""
        parts = {name: getattr(self, name)[rows] for name in ("ids", "follows", "allowed", "may_end", "ended")}
        return replace(self, **parts)
