"""Causal language models in an artifact: written whole, and checked when they are read."""

from __future__ import annotations

import json

import torch
from torch import nn

from triever.artifact import Snapshot, Writer
from triever.models.backbones import Backbone
from triever.models.checked_loading import BUFFER_BYTES, require_sizes
from triever.models.named_weights import named_tensors, set_weights
from triever.models.tokens import TextTokenizer
from triever.validation import require


def write(backbone: Backbone, module: nn.Module, writer: Writer) -> None:
    """Put a model into an artifact, or into a part of one, with all that opening it needs."""
    writer.json("backbone", backbone.to_state())
    writer.json("tokenizer", json.loads(backbone.tokenizer.to_str()))
    writer.tensors("weights", named_tensors(module))


def read(snapshot: Snapshot) -> tuple[Backbone, nn.Module]:
    """The model of an artifact, on the processor and not in training; a ValueError if it cannot be one."""
    tokenizer = TextTokenizer.from_state(snapshot.json("tokenizer"))
    saved, tensors = snapshot.json("backbone"), snapshot.tensors("weights")
    require_sizes(saved["config"], tensors, "model")
    backbone = Backbone.from_state(saved, tokenizer)
    with torch.device("meta"):
        module = backbone.causal_module(empty=True)
    shapes = {name: part.shape for name, part in named_tensors(module).items()}
    require(shapes == {name: part.shape for name, part in tensors.items()}, "its weights do not fit the model")
    kept = module.state_dict()
    unsaved = sum(buffer.nbytes for name, buffer in module.named_buffers() if name not in kept)
    require(unsaved <= BUFFER_BYTES, f"the model asks for {unsaved} bytes that are not saved with it")
    with torch.random.fork_rng(devices=[]):  # opening something must not change what chance does next
        module = backbone.causal_module(empty=True)
    set_weights(module, tensors)
    words = module.get_input_embeddings().weight  # ty: ignore[call-non-callable]
    require(tokenizer.size <= len(words), f"it reads {len(words)} tokens, its tokenizer has more")
    return backbone, module.eval()
