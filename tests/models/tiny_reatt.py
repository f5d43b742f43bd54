"""Small models of both forms, each beside the modules of transformers whose weights it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

from triever.models.backbones import Backbone, learn_tokenizer
from triever.models.reatt import ReAttModel, ReAttShape, new_reatt
from triever.models.tokens import TextTokenizer

VOCABULARY = 300
QUERY_LENGTH = 8
T5_SIZES = {"d_model": 24, "d_kv": 6, "num_heads": 3, "d_ff": 32, "num_layers": 4, "num_decoder_layers": 2}
BERT_SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "max_position_embeddings": 40,
}
FORMS = ("t5", "t5-v1.1", "bert", "bert-copying")


@dataclass(frozen=True)
class GivenBackbone(Backbone):
    """A backbone whose module is there already."""

    module: Any = None

    def seq2seq_module(self, *, empty: bool = False) -> Any:
        return self.module

    def encoder_module(self, *, empty: bool = False) -> Any:
        return self.module


@dataclass
class Tiny:
    """Our model, and the module of transformers that it is made from."""

    form: str
    model: ReAttModel
    theirs: Any

    @property
    def is_t5(self) -> bool:
        return self.form.startswith("t5")

    @property
    def their_encoder(self) -> Any:
        return self.theirs.encoder if self.is_t5 else self.theirs

    @property
    def their_blocks(self) -> Any:
        return self.theirs.encoder.block if self.is_t5 else self.theirs.encoder.layer

    def their_projections(self, layer: int) -> tuple[Any, Any]:
        """The modules that make queries and keys in a layer of transformers."""
        block = self.their_blocks[layer]
        if self.is_t5:
            return block.layer[0].SelfAttention.q, block.layer[0].SelfAttention.k
        return block.attention.self.query, block.attention.self.key

    def their_states(self, ids: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """What the plain encoder of transformers makes of texts; T5 knows no positions."""
        places = {} if self.is_t5 or positions is None else {"position_ids": positions}
        return self.their_encoder(input_ids=ids, attention_mask=mask, **places).last_hidden_state


def tiny(form: str, apart: int | None = 1, dropout: float = 0.0) -> Tiny:
    """A model of random weights in double precision, so that a difference is no matter of rounding."""
    torch.manual_seed(0)
    theirs: Any = _bert() if form.startswith("bert") else _t5(gated=form == "t5-v1.1")
    for parameter in theirs.parameters():  # initial weights hide mistakes: norms of one, biases of nothing
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    theirs = theirs.double().eval()
    config = json.loads(theirs.config.to_json_string(use_diff=False))
    backbone = GivenBackbone(form, "a test", "none", tokenizer(), config, module=theirs)
    copy = form == "bert-copying"
    shape = ReAttShape(apart=apart, query_length=QUERY_LENGTH, dropout=dropout, copy=copy)
    model = new_reatt(backbone, shape).double()
    if model.copying is not None:
        model.copying.weight.data.normal_(std=0.3)
    return Tiny(form, model.eval(), theirs)


def _bert() -> Any:
    config = transformers.BertConfig(vocab_size=VOCABULARY, attn_implementation="eager", **BERT_SIZES)
    return transformers.BertModel(config, add_pooling_layer=False)


def _t5(*, gated: bool) -> Any:
    kind = {"feed_forward_proj": "gated-gelu" if gated else "relu", "tie_word_embeddings": not gated}
    config = transformers.T5Config(
        vocab_size=VOCABULARY, decoder_start_token_id=0, attn_implementation="eager", **T5_SIZES, **kind
    )
    model = transformers.T5ForConditionalGeneration(config)
    if gated:  # as its checkpoints have it; transformers ties what it makes from a config
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, T5_SIZES["d_model"]))
    return model


def tokenizer() -> TextTokenizer:
    return learn_tokenizer(["a few words to begin with"], VOCABULARY)


def texts(lengths: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens of these lengths, filled up on the right."""
    chance = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)), generator=chance)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask


QUESTIONS = [6, 2, 4]
DOCUMENTS = [9, 3, 12, 7]


def questions() -> tuple[Tensor, Tensor]:
    return texts(QUESTIONS, 1)


def documents() -> tuple[Tensor, Tensor]:
    return texts(DOCUMENTS, 2)


def answers() -> Tensor:
    """Three answers, each with its end (token 2), negative behind it."""
    return torch.tensor([[17, 30, 2, -100], [40, 2, -100, -100], [12, 13, 14, 2]])


def hooked(modules: tuple[Any, ...], call: Callable[[], object]) -> list[Tensor]:
    """What these modules gave during a call."""
    seen: dict[Any, Tensor] = {}
    hooks = [module.register_forward_hook(lambda module, _, out: seen.update({module: out})) for module in modules]
    call()
    for hook in hooks:
        hook.remove()
    return [seen[module] for module in modules]
