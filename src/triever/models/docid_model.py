"""A model that reads a text with any backbone and writes a docid: how one is made, saved and opened.

It may begin as a dense retriever that writes: the text's one state, pooled as its encoder pools, goes straight through
to the output layer, whose rows are vectors of the same space, and everything else has yet to learn what to add.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from triever.artifact import Snapshot, Writer, opening
from triever.config import build, option, validate
from triever.errors import UsageError
from triever.models import encoder as encoders
from triever.models.backbones import Backbone
from triever.models.checked_loading import opened_module, require_sizes
from triever.models.encoder import Encoder
from triever.models.layers import BertDecoderLayer, DecoderLayer, T5Shape
from triever.models.seq2seq import Seq2SeqGenerator
from triever.models.t5 import T5, FixedRows, renamed
from triever.models.tokens import Tokens
from triever.validation import require

HEAD = 64
"""Numbers of an attention head, where the width is a multiple."""
SMALL = 0.02
SHARP = 20.0
Table: TypeAlias = Literal["own", "tied", "fixed"]


@dataclass(frozen=True)
class DecoderOptions:
    """The decoder that writes docids: `DecoderOptions(layers=2)`."""

    layers: int = option(2, "decoder layers, where the backbone brings no decoder of its own")
    dropout: float = option(0.1, "share of the decoder's states that is dropped in training")
    begin: Literal["auto", "mean", "symbol"] = option(
        "auto", "what every step starts from: the text's pooled state, or symbols alone; auto: mean if rows are vectors"
    )
    copy: bool = option(
        False,
        "begin with a copy of the reader's own layers, all of them, and attention to the text added (BERT's form)",
    )
    shards: int = option(1, "blocks of output rows, one for each GPU there is: for more documents than one can hold")
    rows: Literal["auto", "vectors", "random"] = option(
        "auto", "what output rows start from: vectors of what they stand for, or chance; auto: vectors if there are any"
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.shards < 1:
            raise UsageError(f"decoder.shards = {self.shards} should be above zero", "1 keeps the rows in one piece")
        if self.layers < 0 or not 0 <= self.dropout < 1:
            problem = f"decoder.layers = {self.layers}, decoder.dropout = {self.dropout}"
            raise UsageError(problem, "layers are not negative, and dropout is a share below 1")
        if self.copy and self.begin == "mean":
            problem = "a decoder that is a copy of the reader begins with symbols, and decoder.begin = mean"
            raise UsageError(problem, "leave one of the two out")
        if not self.layers and self.begin == "symbol":
            problem = "a decoder without layers that begins with symbols alone never sees the text"
            raise UsageError(problem, "leave decoder.begin out, or give it layers")
        if self.rows == "vectors" and self.begin == "symbol":
            problem = "decoder.rows = vectors means nothing to a decoder that begins with symbols alone"
            raise UsageError(problem, "leave decoder.begin or decoder.rows out")


def check_backbone(backbone: Backbone, options: DecoderOptions) -> None:
    """Refuse a backbone that cannot read for a decoder, or not for the one that was asked for."""
    if backbone.causal:
        raise UsageError(f"{backbone.name} is a causal model", "name one that reads both ways, or a T5")
    if options.copy and not is_bert(backbone):
        problem = (
            f"decoder.copy needs a backbone of BERT's form, and {backbone.name} is a {backbone.config['model_type']}"
        )
        raise UsageError(problem, "leave it out, or name one such as minilm")
    if options.rows == "vectors" and options.begin == "auto" and _brings_decoder(backbone):
        problem = f"decoder.rows = vectors means nothing to the decoder that {backbone.name} brings"
        raise UsageError(problem, "leave it out, or name a backbone without a decoder, such as minilm")


def takes_vectors(encoder: Encoder, options: DecoderOptions) -> bool:
    """Whether output rows begin as an encoder's vectors: they have to be of the space of the states that it reads."""
    starts_anew = not _brings_decoder(encoder.backbone) and not options.copy
    pooled = options.begin == "mean" or (options.begin == "auto" and starts_anew)
    return pooled and options.rows != "random" and encoder.shape.projection == "none"


def docid_model(
    reader: Encoder,
    width: int,
    options: DecoderOptions,
    rows: Tensor | None,
    seed: int,
    *,
    single: bool = False,
    table: Table = "own",
) -> T5:
    """A new model over `width` symbols; what does not come with the backbone depends on the seed alone.

    rows (up to width, hidden) are vectors of the reader's space that the first symbols stand for, where it
    `takes_vectors`. Where docids have a `single` symbol, the decoder never reads one, and has none to read but the one
    that it starts from. What symbols are read as may be `tied` to the rows of the output layer, or be `fixed` too, and
    then they are yet to be given, see `respelled`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = _shape(reader, width, options, pooled=_is_pooled(reader, options, rows))
        shape = replace(shape, inputs=1, start=0) if single else _with_table(shape, table, reader.backbone)
        model = T5(shape, reader)
        if _brings_decoder(reader.backbone):
            _take_decoder(model, reader)
        if options.copy:
            _copy_layers(model, reader)
        if model.shape.pooled:
            _start(model, rows)
        return model


def _with_table(shape: T5Shape, table: Table, backbone: Backbone) -> T5Shape:
    theirs = _brings_decoder(backbone) and T5Shape.of(backbone.transformers_config, tied=True).scaled
    return replace(shape, tied=table != "own", fixed=table == "fixed", scaled=table == "tied" and theirs)


def _is_pooled(reader: Encoder, options: DecoderOptions, rows: Tensor | None) -> bool:
    # Without layers nothing else tells of the text.
    blind = not options.layers and not options.copy and not _brings_decoder(reader.backbone)
    return options.begin == "mean" or (options.begin == "auto" and (blind or rows is not None))


def _brings_decoder(backbone: Backbone) -> bool:
    return backbone.config["model_type"] == "t5"


def _shape(reader: Encoder, width: int, options: DecoderOptions, *, pooled: bool) -> T5Shape:
    own: dict[str, Any] = {"pooled": pooled, "pooling": reader.shape.pooling, "encoder_layers": 0}
    own |= {"dropout": options.dropout, "shards": options.shards}
    if _brings_decoder(reader.backbone):
        theirs = T5Shape.of(reader.backbone.transformers_config, tied=False)
        return replace(theirs, vocabulary=1, width=width, start=width, scaled=False, **own)
    if options.copy:
        return _copied_shape(reader.backbone.transformers_config, width, own)
    hidden = reader.backbone.hidden
    d_kv = HEAD if hidden % HEAD == 0 else hidden
    sizes = {"d_model": hidden, "d_kv": d_kv, "heads": hidden // d_kv, "d_ff": 2 * hidden}
    return T5Shape.for_docids(1, width, decoder_layers=options.layers, **sizes, **own)


def _take_decoder(model: T5, reader: Encoder) -> None:
    """Take the decoder that a checkpoint brings; symbols and output rows stay the model's own."""
    weights = renamed(reader.backbone.seq2seq_module().state_dict())
    known = {name: weight for name, weight in weights.items() if name.startswith(("layers.", "norm.", "bias."))}
    model.load_state_dict({**model.state_dict(), **known})


def is_bert(backbone: Backbone) -> bool:
    """Whether its layers can be copied into a decoder."""
    return backbone.config["model_type"] == "bert" and not backbone.causal


def _copied_shape(config: Any, width: int, own: Mapping[str, Any]) -> T5Shape:
    """A decoder with the sizes of a BERT."""
    sizes = {"d_model": config.hidden_size, "heads": config.num_attention_heads, "d_ff": config.intermediate_size}
    sizes |= {"d_kv": config.hidden_size // config.num_attention_heads, "decoder_layers": config.num_hidden_layers}
    sizes |= {"epsilon": config.layer_norm_eps, "positions": config.max_position_embeddings, "form": "bert"}
    return T5Shape.for_docids(1, width, **sizes, **own)


# Names of transformers' BERT on the left, ours on the right.
COPIED = {
    "attention.self.query": "own.q",
    "attention.self.key": "own.k",
    "attention.self.value": "own.v",
    "attention.output.dense": "own.o",
    "attention.output.LayerNorm": "own_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "feed_norm",
}


@torch.no_grad()
def _copy_layers(model: T5, reader: Encoder) -> None:
    """Take the reader's layers; attention to the text is new, and small at first, so that they begin as they were."""
    theirs = reader.module.state_dict()
    weights = {
        f"layers.{layer}.{ours}.{part}": theirs[f"encoder.layer.{layer}.{name}.{part}"]
        for layer in range(model.shape.decoder_layers)
        for name, ours in COPIED.items()
        for part in ("weight", "bias")
    }
    kind = theirs["embeddings.token_type_embeddings.weight"][0]
    weights["entry.places.weight"] = theirs["embeddings.position_embeddings.weight"] + kind
    weights |= {f"entry.norm.{part}": theirs[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias")}
    for layer in model.layers:
        assert isinstance(layer, BertDecoderLayer)
        for linear in (layer.cross.q, layer.cross.k, layer.cross.v, layer.cross.o):
            nn.init.normal_(linear.weight, std=SMALL)
            nn.init.zeros_(linear.bias)
    model.load_state_dict({**model.state_dict(), **weights})


@torch.no_grad()
def _start(model: T5, rows: Tensor | None) -> None:
    """Let layers begin by adding nothing, so that the text's pooled state reaches the output as it is."""
    nn.init.normal_(model.symbols.weight, std=SMALL)
    nn.init.zeros_(model.symbols.weight[model.shape.start])
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        for last in (layer.own.o, layer.cross.o, layer.feed.down):
            nn.init.zeros_(last.weight)
    if rows is not None:
        model.set_rows(rows)


def respelled(model: T5, rows: Tensor, start: Tensor) -> T5:
    """The same model over other fixed symbols (symbols, hidden), with what starts every docid (hidden,) behind them.

    All else is shared between the two. The first rows decide how states are scaled before they meet rows: of a state
    that is as long as they are, the highest score is about SHARP, whatever the backbone's states are like. They also
    decide how rows are scaled where they are read: BERT adds places to what it reads, which have to be felt beside rows
    as they are beside words.
    """
    table = FixedRows(len(rows) + 1, rows.shape[1]).to(model.device)
    table.weight.copy_(torch.cat([rows, start[None].to(rows)]))
    made = copy.copy(model)
    made._modules = {**model._modules, "symbols": table}
    shape = replace(model.shape, width=len(rows), start=len(rows))
    if not shape.scale:
        entering = length_of(words_of(reader_of(model))) / length_of(rows) if shape.form == "bert" else 1.0
        shape = replace(shape, scale=SHARP / length_of(rows) ** 2, entering=entering)
    made.shape = shape
    return made


def as_long_as(rows: Tensor, vector: Tensor) -> Tensor:
    """A vector in its own direction, as long as rows are."""
    return vector * (length_of(rows) / float(vector.norm())) if len(rows) else vector


@torch.no_grad()
def length_of(rows: Tensor) -> float:
    """How long rows are: the root of their mean square."""
    return float(rows.float().square().sum(1).mean().sqrt())


def words_of(reader: Encoder) -> Tensor:
    """(tokens, hidden) what the backbone reads tokens as."""
    return reader.module.get_input_embeddings().weight.detach()  # ty: ignore[call-non-callable]


def generator_of(model: T5, most: int, prefix: str = "") -> Seq2SeqGenerator:
    """What a search asks; of every text, with what stands before all of them, at most so many tokens are read."""
    reader = reader_of(model)

    def tokenise(texts: list[str]) -> tuple[Tensor, Tensor]:
        tokens = Tokens.of([prefix + text for text in texts], reader.tokenizer, most)
        return tokens.padded(range(len(texts)), reader.tokenizer.pad)

    return Seq2SeqGenerator(model, tokenise)


def reader_of(model: T5) -> Encoder:
    """The encoder that reads texts for a model."""
    assert isinstance(model.reader, Encoder)
    return model.reader


def write(model: T5, writer: Writer) -> None:
    """Put a model into an artifact, with all that opening it needs."""
    encoders.write(reader_of(model), writer, "reader")
    writer.json("decoder", asdict(model.shape))
    own = {name: weight for name, weight in model.state_dict().items() if not name.startswith("reader.")}
    writer.tensors("decoder_weights", own)


def read(snapshot: Snapshot) -> T5:
    """The model of an artifact, on the processor and not in training."""
    reader = encoders.read(snapshot, "reader")
    with opening(snapshot.path, "decoder"):
        values, tensors = snapshot.json("decoder"), snapshot.tensors("decoder_weights")
        require_sizes(values, tensors, "decoder")
        shape = build(T5Shape, values)
        least = min(shape.width, shape.start + 1, shape.d_model, shape.d_kv, shape.heads, shape.buckets, shape.shards)
        require(least > 0 and shape.start < max(shape.width, shape.inputs) + 1, "the decoder has sizes below 1")
        require(shape.d_model == reader.backbone.hidden, "the decoder is not as wide as what reads for it")
        # The reader stands for itself only behind it: what is compared and loaded here is the decoder.
        model = opened_module(lambda: T5(shape, nn.Identity()), tensors, "decoder")
        model.reader = reader
        _require_writing(model)
    return model.eval()


@torch.inference_mode()
def _require_writing(model: T5) -> None:
    """A ValueError unless the model can write the first symbol of a docid."""
    begin = torch.tensor([[model.shape.start]])
    hidden, _ = model.decode(begin, None, model.read(*encoders.one_token(reader_of(model).tokenizer)))
    require(model.logits(hidden[:, 0]).isfinite().all(), "the decoder gives scores that are not finite")
