"""Answers that stand in a document word for word: what may follow what was written so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from triever.models.tokens import TextTokenizer


@dataclass(frozen=True)
class Standing:
    """Where what was written so far stands in documents, and so what may follow it."""

    ids: Tensor  # (rows, length) what was read
    follows: Tensor  # (rows, length) whether a token of a document is the next one
    allowed: Tensor  # (rows, length) whether a token may be written at all
    end: int  # may follow where something was written, or where there is nothing to write
    is_begun: bool = False

    @classmethod
    def anywhere(cls, ids: Tensor, is_document: Tensor, tokenizer: TextTokenizer, end: int) -> Standing:
        """Nothing is written yet: an answer may begin with any token of a document but those that frame a text."""
        frame = torch.tensor([*tokenizer.before, *tokenizer.after], dtype=ids.dtype, device=ids.device)
        allowed = is_document & ~torch.isin(ids, frame)
        return cls(ids, allowed, allowed, end)

    def left(self, scores: Tensor) -> Tensor:
        """Scores of all words (rows, words), of which only those are left that may follow."""
        may = torch.zeros_like(scores, dtype=torch.long).scatter_add(1, self.ids, self.follows.long()) > 0
        may[:, self.end] = True if self.is_begun else ~self.follows.any(1)
        return scores.masked_fill(~may, -torch.inf)

    def behind(self, chosen: Tensor) -> Standing:
        """Where it stands after one more token (rows,)."""
        here = self.follows & (self.ids == chosen[:, None])
        follows = functional.pad(here, (1, 0))[:, :-1] & self.allowed
        return replace(self, follows=follows, is_begun=True)

    def take(self, rows: Tensor) -> Standing:
        """Some of the rows."""
        parts = {name: getattr(self, name)[rows] for name in ("ids", "follows", "allowed")}
        return replace(self, **parts)
