"""A tiny causal language model in a folder, as transformers writes one: random weights, every byte a piece."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

END, PAD = "<|end|>", "<|pad|>"
TEXTS = ["What is the answer to a question about this text?", "How does the text say it?\n", "Which of them is it?"]


def save_causal(folder: Path, kind: str = "llama", texts: Sequence[str] = TEXTS, positions: int = 1024) -> Path:
    """A model whose distributions are far from uniform, so that mistakes show."""
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=[END, PAD], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    model = MODELS[kind](tokenizer, positions)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD).save_pretrained(folder)
    return folder


def _llama(tokenizer: Tokenizer, positions: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**_sizes(tokenizer, positions)))


def _qwen2(tokenizer: Tokenizer, positions: int) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(Qwen2Config(**_sizes(tokenizer, positions)))


def _sizes(tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": positions,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
    }


def _gpt2(tokenizer: Tokenizer, positions: int) -> GPT2LMHeadModel:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": positions}
    end = tokenizer.token_to_id(END)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=tokenizer.get_vocab_size(), **sizes, bos_token_id=end, eos_token_id=end)
    )


def _gemma2(tokenizer: Tokenizer, positions: int) -> Gemma2ForCausalLM:
    """Its scores are capped."""
    sizes = {**_sizes(tokenizer, positions), "pad_token_id": tokenizer.token_to_id(PAD)}
    return Gemma2ForCausalLM(Gemma2Config(**sizes, head_dim=8, final_logit_softcapping=5.0))


MODELS = {"llama": _llama, "qwen2": _qwen2, "gpt2": _gpt2, "gemma2": _gemma2}
