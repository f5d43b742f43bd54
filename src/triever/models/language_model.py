"""A causal language model that continues prompts, and says which tokens of a prompt it looks at when it begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triever.errors import UsageError
from triever.models import last_attention, sampling
from triever.models.backbones import Backbone
from triever.models.encoder import one_token
from triever.models.seeds import seeded
from triever.models.standing import Standing
from triever.models.tokens import TextTokenizer


@dataclass(frozen=True)
class Continued:
    """What was written behind each prompt."""

    tokens: list[list[int]]  # without the end
    logprobs: Tensor  # (rows,) of the tokens and of the end, where that was reached
    attention: Tensor  # (rows, length) of the last layer, from the last token of a prompt to all, over heads averaged


class LanguageModel(nn.Module):
    """`model = new_language_model(load_backbone("smollm2"))`; prompts come as ids and mask, padded on the left."""

    def __init__(self, backbone: Backbone, module: nn.Module) -> None:
        super().__init__()
        self.backbone, self.module = backbone, module
        self.end = end_of(backbone)
        last_attention.prepare(module)

    @property
    def tokenizer(self) -> TextTokenizer:
        """What makes numbers of texts for it."""
        return self.backbone.tokenizer

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    @torch.inference_mode()
    def continued(self, ids: Tensor, mask: Tensor, limit: int, is_document: Tensor | None = None) -> Continued:
        """The likeliest token after the other, up to the end or to `limit` tokens; ids and mask are (rows, length).

        With `is_document` (rows, length), only what stands there word for word is written.
        """
        with last_attention.noticed() as seen:
            state = sampling.step(self.module, ids, mask)
        if seen.latest is None:
            problem = f"{self.backbone.name} does not say what it looks at when it writes"
            raise UsageError(problem, "choose a causal model such as smollm2")
        attention = seen.latest.weights()
        if is_document is not None:
            state = sampling.WordForWord(state, Standing.anywhere(ids, is_document, self.tokenizer, self.end))
        return Continued(*sampling.likeliest(state, self.end, limit), attention)


def new_language_model(backbone: Backbone, seed: int = 0) -> LanguageModel:
    """A model with a backbone's weights, where it brings any; one that cannot be used is refused now."""
    model = LanguageModel(backbone, seeded_module(backbone, seed))
    model.continued(*one_token(model.tokenizer), 1)
    return model


def seeded_module(backbone: Backbone, seed: int) -> nn.Module:
    """The language model of a backbone; weights that it does not bring follow from the seed."""
    with seeded(seed):
        return backbone.causal_module().eval()


def end_of(backbone: Backbone) -> int:
    """The token that ends what is written: a training teaches it, and writing stops at it."""
    if not backbone.tokenizer.after:
        raise UsageError(f"{backbone.name} has no token that ends a text", "choose another backbone")
    return backbone.tokenizer.after[-1]
