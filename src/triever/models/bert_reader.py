"""BERT as it reads, with the names of transformers' BertModel, whose weights it takes as they are.

Opening a saved model needs no more than this, and to import transformers takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from triever.validation import require

USUAL = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "chunk_size_feed_forward": (0, None),
}
"""What a config has to say, for those keys that it has; others are read by transformers."""


class Read(NamedTuple):
    """What a model has read."""

    last_hidden_state: Tensor


@dataclass(frozen=True)
class BertSizes:
    """The sizes of a BERT, by the names of transformers' config."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    pad_token_id: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> BertSizes:
        """The sizes in a config; a ValueError if one is none, a KeyError if one is missing."""
        sizes = {name: config[name] for name in cls.__dataclass_fields__ if name != "pad_token_id"}
        for name, size in sizes.items():
            is_share = name.endswith(("eps", "prob"))
            fits = 0 <= size < 1 if is_share and isinstance(size, int | float) else isinstance(size, int) and size >= 0
            require(fits and not isinstance(size, bool), f"its config has {name} = {size!r}")
        heads, hidden = sizes["num_attention_heads"], sizes["hidden_size"]
        require(heads > 0 and hidden > 0 and hidden % heads == 0, f"{heads} heads do not share {hidden} numbers")
        pad = config.get("pad_token_id")
        return cls(**sizes, pad_token_id=pad if isinstance(pad, int) else None)


def reads(config: Mapping[str, Any]) -> bool:
    """Whether a config is that of a usual BERT, which is read here."""
    usual = all(config[name] in values for name, values in USUAL.items() if name in config)
    return config.get("model_type") == "bert" and usual


class _Linear(nn.Linear):
    """A linear layer without random numbers, which would take most of the time of opening."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are: they are loaded."""


class _Embedding(nn.Embedding):
    """The same for vectors of tokens."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are: they are loaded."""


class BertReader(nn.Module):
    """`reader(input_ids=ids, attention_mask=mask).last_hidden_state`, as transformers' BertModel gives it."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.embeddings = _Embeddings(sizes)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(sizes) for _ in range(sizes.num_hidden_layers))})

    def get_input_embeddings(self) -> nn.Embedding:
        """The vectors of tokens."""
        return self.embeddings.word_embeddings

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Read:
        """Read texts (rows, length), of which the mask (rows, length) says which tokens there are."""
        return Read(self.passed(self.embeddings(input_ids), attention_mask, self.layers))

    @property
    def layers(self) -> list[BertLayer]:
        """Its layers, in their order."""
        return [layer for layer in self.encoder["layer"].children() if isinstance(layer, BertLayer)]

    def passed(self, states: Tensor, attention_mask: Tensor, layers: Iterable[nn.Module]) -> Tensor:
        """States (rows, length, hidden) that have gone through some of the layers."""
        mask = attention_mask[:, None, None].bool()
        for layer in layers:
            states = layer(states, mask)
        return states


class _Embeddings(nn.Module):
    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        hidden = sizes.hidden_size
        self.word_embeddings = _Embedding(sizes.vocab_size, hidden, padding_idx=sizes.pad_token_id)
        self.position_embeddings = _Embedding(sizes.max_position_embeddings, hidden)
        self.token_type_embeddings = _Embedding(sizes.type_vocab_size, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, sizes.layer_norm_eps)
        self.dropout = nn.Dropout(sizes.hidden_dropout_prob)

    def forward(self, ids: Tensor, before: int = 0) -> Tensor:
        """Of tokens that stand behind `before` other places."""
        places = self.position_embeddings.weight[before : before + ids.shape[1]]
        states = self.word_embeddings(ids) + self.token_type_embeddings.weight[0] + places
        return self.dropout(self.LayerNorm(states))


class BertLayer(nn.Module):
    """Attention, then an inner layer, each added to its states and normed."""

    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        behind = _Behind(sizes.hidden_size, sizes)
        self.attention = nn.ModuleDict({"self": _Attention(sizes), "output": behind})
        self.intermediate = nn.ModuleDict({"dense": _Linear(sizes.hidden_size, sizes.intermediate_size)})
        self.output = _Behind(sizes.intermediate_size, sizes)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        states = self.attention["output"](self.attention["self"](states, mask), states)
        inside = functional.gelu(self.intermediate["dense"](states))
        return self.output(inside, states)

    def queries(self, states: Tensor) -> Tensor:
        """(rows, heads, length, size of a head) what its attention asks with, for states that come in."""
        attention = self._attention
        return attention.by_head(attention.query(states))

    def keys(self, states: Tensor) -> Tensor:
        """(rows, heads, length, size of a head) what its attention finds states by."""
        attention = self._attention
        return attention.by_head(attention.key(states))

    @property
    def _attention(self) -> _Attention:
        attention = self.attention["self"]
        assert isinstance(attention, _Attention)
        return attention


class _Attention(nn.Module):
    def __init__(self, sizes: BertSizes) -> None:
        super().__init__()
        self.heads, self.dropped = sizes.num_attention_heads, sizes.attention_probs_dropout_prob
        self.query, self.key, self.value = (_Linear(sizes.hidden_size, sizes.hidden_size) for _ in range(3))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        rows, length, hidden = states.shape
        query, key, value = (self.by_head(part(states)) for part in (self.query, self.key, self.value))
        dropped = self.dropped if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropped)
        return seen.transpose(1, 2).reshape(rows, length, hidden)

    def by_head(self, states: Tensor) -> Tensor:
        """(rows, heads, length, size of a head) of states (rows, length, hidden)."""
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


class _Behind(nn.Module):
    """What stands behind attention, and behind the inner layer: back to the width of states, and added to them."""

    def __init__(self, width: int, sizes: BertSizes) -> None:
        super().__init__()
        self.dense = _Linear(width, sizes.hidden_size)
        self.LayerNorm = nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps)
        self.dropout = nn.Dropout(sizes.hidden_dropout_prob)

    def forward(self, inside: Tensor, states: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(inside)) + states)


def empty_reader(config: Mapping[str, Any]) -> BertReader:
    """A reader of the right shape, for weights that are loaded into all of it."""
    return BertReader(BertSizes.of(config)).eval()
