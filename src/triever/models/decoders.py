"""The models that write docids: which kind suits a backbone, how one is made, saved and opened.

A new one may begin as a dense retriever that writes: the text's one state, pooled as its encoder pools, goes straight
through to the output layer, whose rows are vectors of the same space, and everything else has yet to learn what to add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from triever.artifact import Snapshot, Writer, opening
from triever.config import build, option, validate
from triever.errors import UsageError
from triever.models import encoder as encoders
from triever.models.adapters import backbone_tensors
from triever.models.backbones import Backbone
from triever.models.bert import BertDecoder, BertShape, copy_layers
from triever.models.causal import CausalDecoder, CausalShape
from triever.models.checked_loading import opened_module, require_sizes
from triever.models.cross_decoder import CrossDecoder
from triever.models.docid_model import DocidModel, SymbolShape, words_of
from triever.models.encoder import Encoder
from triever.models.layers import DecoderLayer
from triever.models.seeds import seeded
from triever.models.t5 import T5, T5Shape, renamed
from triever.models.token_decoder import TokenDecoder
from triever.validation import require

HEAD = 64
"""Numbers of an attention head, where the width is a multiple."""
SMALL = 0.02
"""The spread of symbols that a decoder reads where the text's one state comes first."""
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
    rows: Literal["auto", "nodes", "symbols", "vectors", "random"] = option(
        "auto",
        "what docids are written with: a row for every node of the trie (nodes), or for every symbol (symbols), which "
        "starts from the vector that it stands for (vectors) or from chance (random); auto: nodes where generative can "
        "use them and nothing else of the decoder is set, else symbols, which start from vectors if there are any",
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.shards < 1:
            raise UsageError(f"decoder.shards = {self.shards} should be above zero", "1 keeps the rows in one piece")
        if self.layers < 0 or not 0 <= self.dropout < 1:
            problem = f"a value is out of range: decoder.layers = {self.layers}, decoder.dropout = {self.dropout}"
            raise UsageError(problem, "set layers to 0 or more, and dropout from 0 to below 1")
        if self.copy and self.begin == "mean":
            problem = "decoder.begin = mean does not fit decoder.copy: a copy of the reader begins with symbols"
            raise UsageError(problem, "leave decoder.begin or decoder.copy out")
        if not self.layers and self.begin == "symbol":
            problem = "a decoder with decoder.layers = 0 and decoder.begin = symbol never sees the text"
            raise UsageError(problem, "leave decoder.begin out, or raise decoder.layers")
        if self.rows == "vectors" and self.begin == "symbol":
            problem = "decoder.rows = vectors has no effect on a decoder with decoder.begin = symbol"
            raise UsageError(problem, "leave decoder.begin or decoder.rows out")


def check_backbone(backbone: Backbone, options: DecoderOptions, *, attends: bool = False) -> None:
    """Refuse a backbone that cannot read for the decoder that was asked for; one that `attends` is not causal."""
    if backbone.causal:
        _check_causal(backbone, options, attends=attends)
    elif options.copy and not is_bert(backbone):
        problem = (
            f"decoder.copy needs a backbone like BERT, but {backbone.name} is a {backbone.config['model_type']} model"
        )
        raise UsageError(problem, "leave decoder.copy out, or name a backbone such as minilm")
    if options.rows == "vectors" and options.begin == "auto" and brings_decoder(backbone):
        problem = f"decoder.rows = vectors has no effect on the decoder that comes with {backbone.name}"
        raise UsageError(problem, "leave decoder.rows out, or name a backbone without a decoder, such as minilm")


def _check_causal(backbone: Backbone, options: DecoderOptions, *, attends: bool) -> None:
    if attends or options.copy:
        wanted = (
            "this decoder attends to the states of a text" if attends else "decoder.copy needs a backbone like BERT"
        )
        raise UsageError(f"{backbone.name} is a causal model, but {wanted}", "name a backbone like BERT or T5")
    if options.begin != "auto":
        problem = f"decoder.begin = {options.begin}, but {backbone.name} is a causal model, which continues the text"
        raise UsageError(problem, "leave decoder.begin out")


def takes_vectors(encoder: Encoder, options: DecoderOptions) -> bool:
    """Whether output rows begin as an encoder's vectors: they have to be of the space of the states that it reads."""
    starts_anew = not brings_decoder(encoder.backbone) and not options.copy
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
) -> DocidModel:
    """A new model over `width` symbols; what does not come with the backbone depends on the seed alone.

    rows (up to width, hidden) are vectors of the reader's space that the first symbols stand for, where it
    `takes_vectors`. Where docids have a `single` symbol, the model never reads one, and has none to read but the one
    that it starts from.
    """
    if not reader.backbone.causal:
        return cross_decoder(reader, width, options, rows, seed, single=single)
    with seeded(seed):
        symbols = CausalShape(width, 0, reader.backbone.hidden, inputs=1 if single else 0, shards=options.shards)
        model = CausalDecoder(symbols, reader)
        if rows is not None:
            model.set_rows(rows)
        return model


def cross_decoder(
    reader: Encoder,
    width: int,
    options: DecoderOptions,
    rows: Tensor | None,
    seed: int,
    *,
    single: bool = False,
    table: Table = "own",
) -> CrossDecoder:
    """The same, with a decoder that attends to the reader's states.

    What symbols are read as may be `tied` to the rows of the output layer, or be `fixed` too, and then they are yet to
    be given, see `DocidModel.with_symbols`.
    """
    with seeded(seed):
        shape = _shape(reader, width, options, pooled=_is_pooled(reader, options, rows))
        shape = replace(shape, inputs=1, start=0) if single else _with_table(shape, table, reader.backbone)
        model = _decoder(shape, reader)
        if brings_decoder(reader.backbone):
            _take_decoder(model, reader)
        if isinstance(model, BertDecoder):
            copy_layers(model, backbone_tensors(reader.module))
        if shape.pooled:
            _start(model, rows)
        return model


def _decoder(shape: T5Shape | BertShape, reader: nn.Module) -> T5 | BertDecoder:
    return BertDecoder(shape, reader) if isinstance(shape, BertShape) else T5(shape, reader)


def _with_table(shape: T5Shape | BertShape, table: Table, backbone: Backbone) -> T5Shape | BertShape:
    theirs = brings_decoder(backbone) and T5Shape.of(backbone.transformers_config, tied=True).scaled
    return replace(shape, tied=table != "own", fixed=table == "fixed", scaled=table == "tied" and theirs)


def _is_pooled(reader: Encoder, options: DecoderOptions, rows: Tensor | None) -> bool:
    # Without layers nothing else tells of the text.
    blind = not options.layers and not options.copy and not brings_decoder(reader.backbone)
    return options.begin == "mean" or (options.begin == "auto" and (blind or rows is not None))


def brings_decoder(backbone: Backbone) -> bool:
    return backbone.config["model_type"] == "t5"


def _shape(reader: Encoder, width: int, options: DecoderOptions, *, pooled: bool) -> T5Shape | BertShape:
    config, hidden = reader.backbone.transformers_config, reader.backbone.hidden
    begins = {"pooled": pooled, "pooling": reader.shape.pooling}
    rest = {"dropout": options.dropout, "shards": options.shards}
    if brings_decoder(reader.backbone):
        theirs = T5Shape.of(config, tied=False)
        size = {"vocabulary": 1, "encoder_layers": 0, "width": width, "start": width}
        return replace(theirs, **size, scaled=False, **begins, **rest)
    if options.copy:
        return BertShape.of(config, width, **begins, **rest)
    d_kv = HEAD if hidden % HEAD == 0 else hidden
    sizes = {"d_model": hidden, "d_kv": d_kv, "heads": hidden // d_kv, "d_ff": 2 * hidden, "encoder_layers": 0}
    return T5Shape.for_docids(1, width, decoder_layers=options.layers, **sizes, **begins, **rest)


def _take_decoder(model: CrossDecoder, reader: Encoder) -> None:
    """Take the decoder that a checkpoint brings; symbols and output rows stay the model's own."""
    weights = renamed(reader.backbone.seq2seq_module().state_dict())
    known = {name: weight for name, weight in weights.items() if name.startswith(("layers.", "norm.", "bias."))}
    model.load_state_dict({**model.state_dict(), **known})


def is_bert(backbone: Backbone) -> bool:
    """Whether its layers can be copied into a decoder."""
    return backbone.config["model_type"] == "bert" and not backbone.causal


@torch.no_grad()
def _start(model: CrossDecoder, rows: Tensor | None) -> None:
    """Let layers begin by adding nothing, so that the text's pooled state reaches the output as it is."""
    nn.init.normal_(model.symbols.weight, std=SMALL)
    nn.init.zeros_(model.symbols.weight[model.shape.start])
    for layer in model.cross_layers():
        assert isinstance(layer, DecoderLayer)  # options refuse to pool behind a copy of BERT
        for last in (layer.own.o, layer.cross.o, layer.feed.down):
            nn.init.zeros_(last.weight)
    if rows is not None:
        model.set_rows(rows)


# Keeping

FORMS: Mapping[str, tuple[type[SymbolShape], type[DocidModel]]] = {
    "t5": (T5Shape, T5),
    "bert": (BertShape, BertDecoder),
    "causal": (CausalShape, CausalDecoder),
    "tokens": (CausalShape, TokenDecoder),
}
"""The kinds of models by the name that an artifact knows them by."""


def write(model: DocidModel, writer: Writer) -> None:
    """Put a model into an artifact, with all that opening it needs."""
    encoders.write(model.encoder, writer, "reader")
    form = next(name for name, (_, kind) in FORMS.items() if type(model) is kind)
    writer.json("decoder", {**asdict(model.shape), "form": form})
    decoder_weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("reader.")}
    writer.tensors("decoder_weights", decoder_weights)


def read(snapshot: Snapshot) -> DocidModel:
    """The model of an artifact, on the processor and not in training."""
    reader = encoders.read(snapshot, "reader")
    with opening(snapshot.path, "decoder"):
        values, tensors = dict(snapshot.json("decoder")), snapshot.tensors("decoder_weights")
        require_sizes(values, tensors, "decoder")
        shape, kind = _read_shape(values)
        sizes = [value for name, value in asdict(shape).items() if name in SIZES]
        require(min(sizes, default=1) > 0 and shape.start >= 0, "the decoder has sizes below 1")
        require(shape.start < max(shape.width, shape.inputs) + 1, "the decoder starts from a symbol that it has not")
        require(shape.d_model == reader.backbone.hidden, "the decoder is not as wide as what reads for it")
        is_causal = issubclass(kind, CausalDecoder)
        require(reader.backbone.causal == is_causal, "the decoder is not of the kind of its reader")
        # The reader stands for itself only behind it: what is compared and loaded here is the decoder.
        model = opened_module(lambda: kind(shape, nn.Identity()), tensors, "decoder")
        model.reader = reader
        known = model.has_own_symbols or shape.width <= len(words_of(reader))
        require(known, "the decoder writes more tokens than its reader knows")
        _require_writing(model)
    return model.eval()


SIZES = ("width", "d_model", "d_kv", "heads", "buckets", "shards")
"""What no decoder has less than one of."""


def _read_shape(values: dict[str, object]) -> tuple[SymbolShape, type[DocidModel]]:
    """The sizes of a decoder and its kind; earlier versions wrote the sizes of all kinds for each."""
    form = values.pop("form", "t5")
    require(isinstance(form, str) and form in FORMS, f"there is no form of decoder named {form!r}")
    shape, kind = FORMS[str(form)]
    every = {field.name for other, _ in FORMS.values() for field in fields(other)}
    names = {field.name for field in fields(shape)}
    return build(shape, {name: value for name, value in values.items() if name in names or name not in every}), kind


@torch.inference_mode()
def _require_writing(model: DocidModel) -> None:
    """A ValueError unless the model can write the first symbol of a docid."""
    states = model.first_states(*encoders.one_token(model.encoder.tokenizer))
    require(model.logits(states).isfinite().all(), "the decoder gives scores that are not finite")
