"""A decoder of any form as a recorded search wants it: of each text equally many prefixes, and fixed shapes.

Those of T5's form are faster as a `FusedGenerator`.
"""

from __future__ import annotations

import copy
from typing import Self, TypeAlias

import torch
from torch import Tensor, nn

from triever.models.cross_decoder import CrossDecoder, Read, Seq2SeqCache, Seq2SeqGenerator
from triever.models.docid_model import Tokenise, versions
from triever.models.fused_decoder import FusedGenerator


def can_be_even(model: nn.Module) -> bool:
    """Whether a model has layers that attend to texts, and all of its rows on one device."""
    return isinstance(model, CrossDecoder) and model.shape.shards <= 1 and any(True for _ in model.cross_layers())


class EvenSeq2SeqGenerator(Seq2SeqGenerator):
    """`EvenSeq2SeqGenerator(model, tokenise)`: of each text it extends equally many prefixes, lying together.

    It computes in the model's numbers, or in others of a copy of it.
    """

    def __init__(self, model: CrossDecoder, tokenise: Tokenise, dtype: torch.dtype | None = None) -> None:
        self._source, self._dtype = model, dtype
        super().__init__(model if dtype in (None, model.dtype) else copy.deepcopy(model).to(dtype), tokenise)
        self.longest: int = getattr(model.reader, "longest", None) or 0
        self.scores_each = self.width
        self._made_from = versions(model)

    def is_current(self) -> bool:
        """Whether the model's weights are still those that it was made from."""
        return self._made_from == versions(self._source)

    def renewed(self) -> Self:
        """One of the weights as they are now."""
        return type(self)(self._source, self.tokenise, self._dtype)

    @torch.inference_mode()
    def read(self, ids: Tensor, mask: Tensor, rows: int = 0) -> tuple[Seq2SeqCache, Tensor]:
        """What `prefill` does, of tokens; room is made as it is needed, whatever `rows` says."""
        return self.begin(self.states(ids, mask), mask)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(texts, length, d_model) the states of tokens."""
        return self.model.encode(ids, mask)

    @torch.inference_mode()
    def begin(self, states: Tensor, mask: Tensor, rows: int = 0) -> tuple[Seq2SeqCache, Tensor]:
        """The same of the states of tokens."""
        return self._begun(self.model.looked_up(states, mask))

    def _read_for(self, cache: Seq2SeqCache, text: Tensor) -> Read:
        """What was read, as it is: to look whether the prefixes lie evenly would be to wait for a GPU."""
        return cache.read

    def scores_all(self, candidates: int) -> bool:
        """Whether so many candidates of each prefix are scored among all symbols."""
        return self.model.scores_all(candidates)


Even: TypeAlias = FusedGenerator | EvenSeq2SeqGenerator
"""A decoder of any form behind texts, as a recorded search wants it."""
