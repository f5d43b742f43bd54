"""Where the last token of a text looks in the last layer of a causal model.

Attention is computed as always, without its weights: those of all layers and tokens would not fit into memory. Inside
of `noticed`, what a layer has of the last token is kept until the next layer comes, so that of the last layer is left.
Every model of transformers that looks up its attention function by name can do that.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAME = "triever_last"
"""The name of our attention function."""


@dataclass(frozen=True)
class LastToken:
    """What a layer compares for the last token of each text."""

    query: Tensor  # (rows, heads, size)
    keys: Tensor  # (rows, heads or fewer, length, size)
    mask: Tensor | None  # (rows or 1, 1 or heads, length), true where it may look, or what is added; None: everywhere
    scaling: float

    def weights(self) -> Tensor:
        """(rows, length) how much of its attention goes to each token, averaged over heads; it adds up to one."""
        with torch.autocast(self.query.device.type, enabled=False):  # which would round them
            return self._scores().softmax(2).mean(1)

    def _scores(self) -> Tensor:
        """(rows, heads, length) what the softmax is of."""
        shared = self.query.shape[1] // self.keys.shape[1]
        grouped = self.query.float().unflatten(1, (-1, shared))  # heads side by side that share their keys
        scores = torch.einsum("rgsd,rgld->rgsl", grouped, self.keys.float()).flatten(1, 2) * self.scaling
        if self.mask is None:
            return scores
        return scores.masked_fill(~self.mask, -torch.inf) if self.mask.dtype == torch.bool else scores + self.mask


class Noticed:
    """What the last layer has compared, once a model has read."""

    latest: LastToken | None = None


_NOTICED: ContextVar[Noticed | None] = ContextVar("noticed", default=None)  # threads may share a model


@contextmanager
def noticed() -> Generator[Noticed]:
    """`with noticed() as seen: model(...)`, and then `seen.latest`; nothing if the model was not prepared for it."""
    seen = Noticed()
    token = _NOTICED.set(seen)
    try:
        yield seen
    finally:
        _NOTICED.reset(token)


def prepare(module: Any) -> None:
    """Let a causal model of transformers be noticed; it computes as before."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    module.set_attn_implementation(NAME)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention by torch's own function; query (rows, heads, length, size)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    seen = _NOTICED.get()
    if seen is not None:
        mask = None if attention_mask is None else attention_mask[:, :, -1, : key.shape[2]]
        seen.latest = LastToken(query[:, :, -1], key, mask, query.shape[-1] ** -0.5 if scaling is None else scaling)
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
