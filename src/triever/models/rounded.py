"""A copy of a model in bfloat16, for searches where that is faster. What learns is the model, never the copy."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch

from triever.models.docid_model import DocidModel, versions

M = TypeVar("M", bound=DocidModel)


class Rounded(Generic[M]):
    """`Rounded(model).now()`: the copy, made again where the weights of the model have changed."""

    def __init__(self, model: M) -> None:
        self._source = model
        self._copy: M | None = None
        self._made_from: list[tuple[int, int]] = []

    def now(self) -> M:
        """The model as it is now, in bfloat16."""
        weights = versions(self._source)
        if self._copy is None or self._made_from != weights:
            self._copy, self._made_from = copy.deepcopy(self._source).to(torch.bfloat16), weights
        return self._copy
