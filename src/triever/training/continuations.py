"""What a causal language model learns to write behind a prompt: batches, and how likely the model finds each text.

A text ends with the token that ends it. The model learns the text and its end, not the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.models.language_model import LanguageModel
from triever.models.sampling import left_padded, read
from triever.models.tokens import Tokens
from triever.training.piecewise import mean_in_pieces

Numbers = Sequence[int] | np.ndarray
"""The tokens of a text."""


def continuation_batch(prompts: Sequence[Numbers], texts: Sequence[Numbers], pad: int) -> dict[str, Tensor]:
    """Prompts followed by their texts, padded on the left; the last `length` tokens are the text's."""
    rows = [[*map(int, prompt), *map(int, text)] for prompt, text in zip(prompts, texts, strict=True)]
    ids, mask = left_padded(*Tokens.from_lists(rows, 2**31).all_padded(pad))
    return {"ids": ids, "mask": mask, "length": torch.tensor([len(text) for text in texts])}


def spaced(text: str) -> str:
    """A text as it follows a prompt: with a space, which most tokenizers make a part of the first word."""
    return f" {text.strip()}"


def log_likelihoods(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """(rows,) the log-likelihood of each text and its end after its prompt."""
    length = batch["length"]
    longest = int(length.max())
    scores = read(model, batch["ids"], batch["mask"], longest + 1).logits[:, :-1]
    tokens = batch["ids"][:, -longest:]
    each = functional.cross_entropy(scores.float().flatten(0, 1), tokens.flatten(), reduction="none").view_as(tokens)
    in_text = torch.arange(longest, device=length.device) >= longest - length[:, None]
    return -torch.where(in_text, each, 0).sum(1)


def mean_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean over texts of minus the log-likelihood of a token."""
    return -(log_likelihoods(model, batch) / batch["length"]).mean()


@dataclass(frozen=True)
class AnswerLoss:
    """`AnswerLoss(at_once=4)(model, batch)`, with a batch of `continuation_batch` whose texts are answers."""

    at_once: int = 0
    """Prompts that are read at once, with gradients as of the whole batch; 0 is all of them."""

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean loss of answers."""
        assert isinstance(model, LanguageModel)
        return {"answer": mean_in_pieces(model, batch, self.at_once, partial(mean_loss, model.module))}
