"""Models of retrieval as attention in an artifact: written whole, and checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from triever.artifact import Snapshot, Writer, opening
from triever.config import build, to_dict
from triever.models.backbones import Backbone
from triever.models.bert import BertShape
from triever.models.bert_reader import reads
from triever.models.checked_loading import opened_module, require_sizes
from triever.models.decoders import brings_decoder
from triever.models.encoder import one_token
from triever.models.reatt import DecoderShape, ReAttModel, ReAttShape
from triever.models.split_encoder import SplitBert, SplitT5
from triever.models.t5 import T5Shape
from triever.models.tokens import TextTokenizer
from triever.validation import require

SYMBOLS = "decoder.symbols.weight"
"""What the decoder reads words as, which is the encoder's own table and is not written twice."""
SIZES = ("width", "vocabulary", "d_model", "d_kv", "heads", "buckets", "positions")
"""What no model has less than one of."""


def write(model: ReAttModel, writer: Writer, role: str = "reatt") -> None:
    """Put a model into an artifact, with all that opening it needs."""
    shapes = {"shape": to_dict(model.shape), "decoder": asdict(model.decoder.shape)}
    writer.json(role, {"backbone": model.backbone.to_state(), **shapes})
    writer.json(f"{role}_tokenizer", json.loads(model.tokenizer.to_str()))
    writer.tensors(f"{role}_weights", {name: weight for name, weight in model.state_dict().items() if name != SYMBOLS})


def read(snapshot: Snapshot, role: str = "reatt") -> ReAttModel:
    """The model of an artifact, on the processor and not in training."""
    with opening(snapshot.path, role):
        state, tensors = snapshot.json(role), snapshot.tensors(f"{role}_weights")
        tokenizer = TextTokenizer.from_state(snapshot.json(f"{role}_tokenizer"))
        require_sizes(state["backbone"]["config"], tensors, role)
        require_sizes(state["decoder"], tensors, role)
        backbone = Backbone.from_state(state["backbone"], tokenizer)
        require(bool(tokenizer.after), "the tokenizer has no token that ends an answer")
        shape, decoder_shape = build(ReAttShape, state["shape"]), _decoder_shape(backbone, state["decoder"])
        words = f"encoder.{(SplitT5 if isinstance(decoder_shape, T5Shape) else SplitBert).WORDS}"
        require(words in tensors, f"the {role} lacks the weights {words}")
        known = {**tensors, SYMBOLS: tensors[words]}
        model = opened_module(lambda: ReAttModel(backbone, shape, decoder_shape), known, role)
        require(tokenizer.size <= len(tensors[words]), f"the {role} has fewer words than its tokenizer")
        _require_answering(model)
        return model


def _decoder_shape(backbone: Backbone, values: Mapping[str, Any]) -> DecoderShape:
    is_t5 = brings_decoder(backbone)
    require(is_t5 or reads(backbone.config), "its backbone is neither a T5 nor a BERT")
    shape = build(T5Shape, dict(values)) if is_t5 else build(BertShape, dict(values))
    sizes = [value for name, value in asdict(shape).items() if name in SIZES]
    require(min(sizes) > 0 and 0 <= shape.start < shape.width, "the decoder has sizes that cannot be")
    return shape


@torch.inference_mode()
def _require_answering(model: ReAttModel) -> None:
    """A ValueError unless the model can read and answer; settings that cannot be show only then."""
    ids, mask = one_token(model.tokenizer)
    asked, held = model.query_states(ids, mask), model.document_states(ids, mask)
    require(model.relevance(asked, mask, held, mask).isfinite().all(), "its relevance is not finite")
    read = model.read(model.encode_pairs(asked, mask, held[:, None], mask[:, None], (ids, ids[:, None])))
    require(model.generate(read, 1).logprobs.isfinite().all(), "it gives scores that are not finite")
