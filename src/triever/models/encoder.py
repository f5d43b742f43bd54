"""Text to one vector, or to one vector for each token: a backbone, pooling, a projection, unit length.

`encode` and `encode_tokens` do it for a whole corpus, in batches of nearly equal length, so that no more than
one padded batch is ever in memory. Knows nothing about indexes or about training.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.artifact import Snapshot, Writer, opening
from triever.config import build, option, to_dict, validate
from triever.disk_arrays import room
from triever.errors import UsageError
from triever.models.adapters import (
    AdapterOptions,
    adapter_weights,
    attach,
    backbone_tensors,
    is_new,
    plain_name,
)
from triever.models.backbones import Backbone
from triever.models.checked_loading import opened_module, require_sizes
from triever.models.elsewhere import Place, place_for
from triever.models.encoding_blocks import Encoding, Padded, encoded_at, of_chosen, reading_on
from triever.models.named_backbones import NamedBackbone, weights_hash
from triever.models.tokens import TextTokenizer, Tokens, by_length, in_pieces
from triever.models.weights import NEEDED
from triever.progress import track
from triever.validation import require

BATCH_TOKENS = {"cpu": 2_048}
"""Tokens of a padded batch. A processor reads larger ones no faster, and a few hundred texts differ in length: in large
batches up to half of what is computed would be padding (`benchmarks/processors.py`)."""
OTHER_BATCH_TOKENS = 32_768
BATCH_ROWS = 1024
PIECES = 4
"""Pieces at most that a batch of texts to learn from is read in, where their lengths differ."""
PIECE_TOKENS = {"cpu": 1}
"""Tokens of a padded batch for each of its pieces; a GPU that is given more and smaller work has to wait for it."""
OTHER_PIECE_TOKENS = 32_768
MODULE = "module."
"""What the names of the backbone's weights begin with."""
Put: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
Choose: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Call(Protocol):
    """A method of an encoder that reads padded texts."""

    @property
    def __name__(self) -> str:
        """What it is called."""
        ...

    def __call__(self, ids: Tensor, mask: Tensor, /) -> Tensor:
        """What it makes of ids and their mask (texts, length)."""
        ...


@dataclass(frozen=True)
class EncoderShape:
    """What stands behind the backbone: `EncoderShape(size=128, projection="linear")`."""

    pooling: Literal["mean", "first", "last"] = option(
        "mean", "which hidden states become the text's: mean, first, last"
    )
    size: int = option(0, "width of the vectors; 0 is that of the hidden states")
    projection: Literal["none", "linear", "two-layer"] = option("none", "what changes the width: linear, or two-layer")
    unit: bool = option(True, "whether vectors have length one")

    def __post_init__(self) -> None:
        validate(self)
        if self.size < 0:
            raise UsageError(f"size = {self.size} should not be negative", "0 takes the width of the backbone")
        if self.size and self.projection == "none":
            raise UsageError(f"size = {self.size} needs a projection", "set projection to linear or two-layer")


class Encoder(nn.Module):
    """`encoder(ids, mask)` is one vector for each text: `Encoder(load_backbone("minilm"))`.

    An adapter may stand inside the backbone, which may have to stay as it is. If it can be found again by its name,
    neither checkpoints nor artifacts hold its weights then.
    """

    def __init__(
        self,
        backbone: Backbone,
        shape: EncoderShape | None = None,
        *,
        empty: bool = False,
        adapter: AdapterOptions | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.shape = shape or EncoderShape(pooling="last" if backbone.causal else "mean")
        self.module = backbone.encoder_module(empty=empty)
        self.size = self.shape.size or backbone.hidden
        self.projection = _projection(self.shape.projection, backbone.hidden, self.size)
        self.longest = backbone.longest
        self.adapter = AdapterOptions()
        self.named: NamedBackbone | None = None  # what the backbone's weights are, where an artifact may name them
        if adapter is not None and adapter != self.adapter:
            if adapter.freezes and not empty:
                self.named = NamedBackbone.of(backbone, self.module.state_dict())
            self.adapt(adapter)

    def adapt(self, options: AdapterOptions) -> Self:
        """Put an adapter into the backbone; it changes nothing before it is trained."""
        if self.adapter.kind != "none":
            problem = f"the encoder of {self.backbone.name} has an adapter already ({self.adapter.kind})"
            raise UsageError(problem, "leave adapter.kind out")
        attach(self.module, options, self.backbone.name)
        self.adapter = options
        if not options.freezes:
            self.named = None
        return self.requires_grad_()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let its weights learn, or not; those of a backbone that is to stay as it is never do."""
        super().requires_grad_(requires_grad)
        for tensor in self.frozen_tensors():
            tensor.requires_grad_(False)
        return self

    def let_learn(self, *, backbone: bool) -> None:
        """Let the adapter learn, if there is one, and the rest of it only where the backbone is to learn."""
        self.requires_grad_(backbone)
        for weight in adapter_weights(self.module):
            weight.requires_grad_()

    def frozen_tensors(self) -> list[Tensor]:
        """The weights of a backbone that stays as it is."""
        return [*backbone_tensors(self.module).values()] if self.adapter.freezes else []

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text are read: so many as are wanted, if the backbone can."""
        return min(wanted, self.longest or wanted)

    @property
    def tokenizer(self) -> TextTokenizer:
        """What makes numbers of texts for it."""
        return self.backbone.tokenizer

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Texts (rows, length), filled up on the right, to vectors (rows, size)."""
        return self.vectors(self.states(ids, mask), mask)

    def vectors(self, states: Tensor, mask: Tensor) -> Tensor:
        """The vectors (rows, size) of texts whose hidden states (rows, length, hidden) are there already."""
        projected = self.projection(pooled(states, mask, self.shape.pooling))
        return _unit(projected) if self.shape.unit else projected.float()

    def token_vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Texts (rows, length) to vectors of length one (rows, length, size), zero where the mask is."""
        vectors = _unit(self.projection(self.states(ids, mask)))
        return vectors.masked_fill(mask[:, :, None] == 0, 0)

    def plain_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The backbone's last hidden states (rows, length, hidden) in float32, zero where the mask is."""
        return self.states(ids, mask).float().masked_fill(mask[:, :, None] == 0, 0)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The backbone's last hidden states (rows, length, hidden)."""
        if self.longest and ids.shape[1] > self.longest:
            problem = f"a text has {ids.shape[1]} tokens, but {self.backbone.name} reads at most {self.longest}"
            raise UsageError(problem, f"tokenise with at most {self.longest} tokens")
        if self.training:  # what is only read comes in batches of nearly equal length
            return self._states_in_pieces(ids, mask)
        return self.module(input_ids=ids, attention_mask=mask).last_hidden_state

    def _states_in_pieces(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The same, and zero behind the longest text of each piece, which is not computed there."""
        lengths = mask.sum(1).tolist()
        pieces = in_pieces(lengths, _most_pieces(ids))
        if len(pieces) < 2:
            return self.module(input_ids=ids, attention_mask=mask).last_hidden_state
        padded = []
        for piece in pieces:
            rows = torch.from_numpy(piece).to(ids.device)
            longest = max(1, lengths[piece[0]])
            states = self.module(input_ids=ids[rows, :longest], attention_mask=mask[rows, :longest]).last_hidden_state
            padded.append(functional.pad(states, (0, 0, 0, ids.shape[1] - longest)))
        order = np.concatenate(pieces)
        return torch.cat(padded)[torch.from_numpy(np.argsort(order)).to(ids.device)]


def _most_pieces(ids: Tensor) -> int:
    """In how many pieces a batch (rows, length) may be read: two, and more if all of them are large."""
    return min(PIECES, max(2, ids.numel() // PIECE_TOKENS.get(ids.device.type, OTHER_PIECE_TOKENS)))


def turned(encoder: Encoder, matrix: Tensor) -> Encoder:
    """The same encoder, whose vectors go through a matrix (size, size) at the end; it shares the backbone's weights."""
    is_plain = encoder.shape.projection == "none"
    shape = replace(encoder.shape, size=encoder.size, projection="linear") if is_plain else encoder.shape
    other = Encoder(encoder.backbone, shape, empty=True)
    other.module, other.adapter, other.named = encoder.module, encoder.adapter, encoder.named
    if not is_plain:
        other.projection = copy.deepcopy(encoder.projection)
    last = other.projection[-1] if isinstance(other.projection, nn.Sequential) else other.projection
    assert isinstance(last, nn.Linear)  # so all projections end
    with torch.no_grad():
        last.weight.copy_(matrix if is_plain else matrix @ last.weight)
        if last.bias is not None:
            last.bias.copy_(matrix @ last.bias)
    return other.to(encoder.device).train(encoder.training)


def _projection(kind: str, hidden: int, size: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(hidden, size, bias=False)
    return nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, size))


def pooled(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """One state (rows, hidden) for each text, from those of its tokens (rows, length, hidden), in float32."""
    clean = states.float().masked_fill(mask[:, :, None] == 0, 0)  # so that a row without tokens gives zeros, not NaN
    if how == "first":
        return clean[:, 0]
    length = mask.sum(1)
    if how == "mean":
        return clean.sum(1) / length.clamp(min=1)[:, None]
    last = (length - 1).clamp(min=0)
    return clean[torch.arange(len(clean), device=clean.device), last]


def _unit(vectors: Tensor) -> Tensor:
    return functional.normalize(vectors.float(), dim=-1)


def encode(
    encoder: Encoder,
    tokens: Tokens,
    pad: int | None = None,
    *,
    device: str | torch.device | None = None,
    batch_tokens: int | None = None,
    label: str = "encoding",
    folder: str | Path | None = None,
) -> np.ndarray:
    """The vectors of all texts in their order, (texts, size) float32. The encoder stays on the device.

    They are in memory while they are few, else in a file of the folder that is gone when they are.
    """
    out = room((len(tokens), encoder.size), np.float32, folder)

    def put(rows: np.ndarray, _mask: np.ndarray, vectors: np.ndarray) -> None:
        out[rows] = vectors

    _Pass(encoder, tokens, pad, device, batch_tokens, label).each(encoder.forward, put)
    return out


def encode_tokens(
    encoder: Encoder,
    tokens: Tokens,
    pad: int | None = None,
    *,
    keep: np.ndarray | None = None,
    file: str | Path | None = None,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    batch_tokens: int | None = None,
    label: str = "encoding tokens",
    plain: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """A vector for each token, (all tokens, size) float16, and where each text begins, (texts + 1,) int64.

    Vectors have length one, and are projected as the encoder does, or with `plain` are the hidden states themselves.

    `keep` says of each token in `tokens.flat` whether it gets one: `tokens.keep(tokenizer.punctuation())`. With a
    file the vectors are written there as .npy, and mapped. Without one they are in memory while they are few, else
    in a file of the folder, or of the system's for such things, that is gone when they are.
    """
    if keep is not None and keep.shape != tokens.flat.shape:
        problem = f"keep has {len(keep)} values, but there are {len(tokens.flat)} tokens"
        raise UsageError(problem, "make keep from the same tokens")
    starts = tokens.starts if keep is None else _kept_starts(tokens, keep)
    shape = int(starts[-1]), encoder.backbone.hidden if plain else encoder.size
    out = room(shape, np.float16, folder) if file is None else _mapped(file, shape)

    def choose(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if keep is None:
            return mask
        chosen = mask.copy()
        chosen[mask] = keep[(tokens.starts[rows][:, None] + np.arange(mask.shape[1]))[mask]]
        return chosen

    def put(rows: np.ndarray, chosen: np.ndarray, vectors: np.ndarray) -> None:
        out[(starts[rows][:, None] + chosen.cumsum(1) - 1)[chosen]] = vectors

    _Pass(encoder, tokens, pad, device, batch_tokens, label).each(
        encoder.plain_states if plain else encoder.token_vectors, put, choose
    )
    return out, starts


def _kept_starts(tokens: Tokens, keep: np.ndarray) -> np.ndarray:
    """Where each text begins among the tokens that are kept."""
    starts = np.zeros(len(tokens) + 1, np.int64)
    for low in range(0, len(tokens), BATCH_ROWS):  # some at a time: a number for every token would be too many
        edges = tokens.starts[low : low + BATCH_ROWS + 1]
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep[edges[0] : edges[-1]])])
        starts[low + 1 : low + len(edges)] = starts[low] + counts[edges[1:] - edges[0]]
    return starts


def _mapped(file: str | Path, shape: tuple[int, int]) -> np.ndarray:
    if not shape[0]:  # nothing cannot be mapped
        np.save(file, np.empty(shape, np.float16))
        return np.load(file)
    return np.lib.format.open_memmap(file, "w+", np.float16, shape)


@dataclass(frozen=True)
class _Pass:
    """One pass of an encoder over texts, in batches of nearly equal length."""

    encoder: Encoder
    tokens: Tokens
    pad: int | None
    device: str | torch.device | None
    batch_tokens: int | None
    label: str

    def each(self, call: Call, put: Put, choose: Choose | None = None) -> None:
        """Give `put` the rows of every batch, their mask, and what the call makes of them.

        With `choose`, the call makes something of each token, and what is chosen of the mask goes on, as float16.
        """
        device = torch.device(self.device) if self.device is not None else self.encoder.device
        if place := place_for(len(self.tokens)):
            self._run_at(place, call, put, choose, device)
            return
        training = self.encoder.training
        self.encoder.to(device).eval()
        try:
            with reading_on(device):
                self._run(call, put, choose, device)
        finally:
            self.encoder.train(training)

    def _batches(self, device: torch.device) -> list[np.ndarray]:
        limit = self.batch_tokens or BATCH_TOKENS.get(device.type, OTHER_BATCH_TOKENS)
        return by_length(self.tokens.lengths, BATCH_ROWS, limit)

    @property
    def _pad(self) -> int:
        return self.encoder.tokenizer.pad if self.pad is None else self.pad

    def _run_at(self, place: Place, call: Call, put: Put, choose: Choose | None, device: torch.device) -> None:
        """The same batches, made elsewhere."""

        def padded(rows: np.ndarray) -> Padded:
            ids, mask = (tensor.numpy() for tensor in self.tokens.padded(rows, self._pad))
            return Padded(ids, mask, choose(rows, mask.astype(bool)) if choose else None)

        batches = self._batches(device)
        # Workers need not have the device that this process has.
        encoder = self.encoder if self.encoder.device.type == "cpu" else copy.deepcopy(self.encoder).cpu()
        about = json.dumps([to_dict(encoder.shape), to_dict(encoder.adapter), encoder.backbone.to_state()], default=str)
        made = encoded_at(place, Encoding(encoder, call.__name__, about), batches, padded, self.label)
        for rows, vectors in zip(batches, made, strict=True):
            _, mask, chosen = padded(rows)
            put(rows, mask.astype(bool) if chosen is None else chosen, vectors)

    def _run(self, call: Call, put: Put, choose: Choose | None, device: torch.device) -> None:
        """While a device computes a batch, the one before it is put away and the next one is padded."""
        batches = self._batches(device)
        before: tuple[np.ndarray, np.ndarray, Tensor] | None = None
        for rows in track(batches, self.label, len(self.tokens), unit="texts", size=len):
            ids, mask = self.tokens.padded(rows, self._pad)
            vectors, chosen = call(ids.to(device), mask.to(device)), mask.numpy().astype(bool)
            if choose:
                chosen = choose(rows, chosen)
                vectors = of_chosen(vectors, chosen)
            if before:
                _put_away(before, put)
            before = rows, chosen, vectors
        if before:
            _put_away(before, put)


def _put_away(batch: tuple[np.ndarray, np.ndarray, Tensor], put: Put) -> None:
    rows, chosen, vectors = batch
    put(rows, chosen, vectors.cpu().numpy())


class Begun(Protocol):
    """A model that started from a backbone."""

    @property
    def backbone(self) -> Backbone:
        """What it started from."""
        ...


def source_of(model: Begun) -> str:
    """Whose weights a model started from, and under which licence."""
    return f"{model.backbone.source} (licence: {model.backbone.licence})"


def adapter_facts(encoder: Encoder) -> dict[str, int | str]:
    """How many weights its adapter has, and what is needed where its backbone is only named, for a card."""
    count = sum(weight.numel() for weight in adapter_weights(encoder.module))
    needed: dict[str, int | str] = {NEEDED: encoder.named.needed} if encoder.named else {}
    return ({"adapter weights": count} if count else {}) | needed


def one_token(tokenizer: TextTokenizer) -> tuple[Tensor, Tensor]:
    """The ids and the mask of the shortest text that there is, to see whether a model can read."""
    return torch.tensor([[tokenizer.pad]]), torch.ones(1, 1, dtype=torch.long)


def write(encoder: Encoder, writer: Writer, role: str = "encoder") -> None:
    """Put an encoder into an artifact, with all that opening it needs.

    A backbone that stayed as it was is named if it can be found by its name; else its weights are written too.
    """
    state = {"backbone": encoder.backbone.to_state(), "shape": to_dict(encoder.shape)}
    tensors = {plain_name(name): tensor for name, tensor in encoder.state_dict().items()}
    if encoder.adapter != AdapterOptions():
        state["adapter"] = to_dict(encoder.adapter)
    if named := _named(encoder):
        state["named"] = asdict(named)
        tensors = {name: tensor for name, tensor in tensors.items() if is_new(name) or not name.startswith(MODULE)}
    writer.json(role, state)
    writer.json(f"{role}_tokenizer", json.loads(encoder.tokenizer.to_str()))
    writer.tensors(f"{role}_weights", tensors)


def _named(encoder: Encoder) -> NamedBackbone | None:
    """The name of the backbone, unless its weights have changed after all: then they are nowhere else."""
    named = encoder.named
    return named if named and named.sha256 == weights_hash(backbone_tensors(encoder.module)) else None


def read(snapshot: Snapshot, role: str = "encoder") -> Encoder:
    """The encoder of an artifact, on the processor and not in training."""
    with opening(snapshot.path, role):
        state, tensors = snapshot.json(role), snapshot.tensors(f"{role}_weights")
        tokenizer = TextTokenizer.from_state(snapshot.json(f"{role}_tokenizer"))
        adapter = build(AdapterOptions, state.get("adapter", {}))
        named = build(NamedBackbone, state["named"]) if "named" in state else None
        if named:
            require(adapter.freezes, f"the {role} has no backbone of its own, and none that stays as it is")
            found = named.tensors(snapshot.backbone, snapshot.path)
            tensors = {**{f"{MODULE}{name}": tensor for name, tensor in found.items()}, **tensors}
        require_sizes(state["backbone"]["config"], tensors, role)
        backbone, shape = Backbone.from_state(state["backbone"], tokenizer), build(EncoderShape, state["shape"])
        encoder = opened_module(
            lambda: Encoder(backbone, shape, empty=True, adapter=adapter), tensors, role, plain_name
        )
        encoder.named = named
        words = encoder.module.get_input_embeddings().weight  # ty: ignore[call-non-callable]
        require(tokenizer.size <= len(words), f"the {role} reads {len(words)} tokens, its tokenizer has more")
        with torch.inference_mode():  # settings of a backbone that cannot be show only when it reads something
            require(encoder(*one_token(tokenizer)).isfinite().all(), f"the {role} makes vectors that are not finite")
        return encoder
