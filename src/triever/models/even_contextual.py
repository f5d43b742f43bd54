"""A generator over the texts of tokens as a recorded search wants it: of each prefix equally many paths.

Nothing depends on how many paths have a share: those without one are computed too, and count for nothing.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from triever.docids.contextual_vocabulary import Spellings
from triever.models.contextual_generator import NEGLIGIBLE, ContextualGenerator, PathCache, PathStates
from triever.models.even_decoder import Even
from triever.models.generator import Cache
from triever.models.kernels import log_sum_exp

SCORES = 2**27
"""The most scores of ids that are there at once where paths are weighed."""


class EvenContextualGenerator(ContextualGenerator):
    """`EvenContextualGenerator(even generator of ids, spellings, paths=5)`: see `ContextualGenerator`."""

    inner: Even

    def __init__(self, inner: Even, spellings: Spellings, *, paths: int = 5, negligible: float = NEGLIGIBLE) -> None:
        super().__init__(inner, spellings, paths=paths, negligible=negligible)
        self.tokenise, self.longest = inner.tokenise, inner.longest
        self.scores_each = paths * inner.width
        self._spellings, self._negligible = spellings, negligible

    def is_current(self) -> bool:
        """Whether the model's weights are still those that it was made from."""
        return self.inner.is_current()

    def renewed(self) -> Self:
        """One of the weights as they are now."""
        inner = self.inner.renewed()
        return type(self)(inner, self._spellings, paths=self.paths, negligible=self._negligible)

    @torch.inference_mode()
    def prefill(self, prompts: list[str]) -> tuple[PathCache, PathStates]:
        """Read the texts; the empty prefix has one path."""
        ids, mask = (tensor.to(self.device) for tensor in self.tokenise(prompts))
        return self.read(ids, mask)

    @torch.inference_mode()
    def read(self, ids: Tensor, mask: Tensor, rows: int = 0) -> tuple[PathCache, PathStates]:
        """The same of tokens, with room for so many symbols."""
        inner, hidden = self.inner.read(ids, mask, rows * self.paths)
        cache = self._packed(inner, hidden, torch.zeros(len(hidden), 1, device=self.device, dtype=torch.float64))
        return cache, cache.paths

    def _followed(self, cache: PathCache, parents: Tensor, token: Tensor) -> PathCache:
        """The likeliest paths of each prefix that is followed by one symbol, equally many of each."""
        ids = self._ids[token]  # (n, most_ids)
        share, at = self._likeliest(cache.paths[parents], ids)
        rows = cache.rows[parents].gather(1, at // ids.shape[1])
        chosen = ids.gather(1, at % ids.shape[1]).clamp(min=0)
        inner, hidden = self.inner.extend(cache.inner, rows.flatten(), chosen.view(-1, 1))
        return self._packed(inner, hidden[:, -1], share)

    def _packed(self, inner: Cache, hidden: Tensor, share: Tensor) -> PathCache:
        """What is remembered of the logs of shares (n, paths), and of the states (n * paths, d) of all paths."""
        pieces = hidden.split(max(1, SCORES // self.inner.width))
        total = torch.cat([log_sum_exp(self.inner.logits(piece)) for piece in pieces]).view_as(share)
        lost = (1 - share.exp().sum(1)).clamp(min=0).log()
        paths = PathStates(hidden.view(*share.shape, -1), (share - total).float(), lost.float())
        return PathCache(inner, paths, torch.arange(len(hidden), device=self.device).view_as(share))
