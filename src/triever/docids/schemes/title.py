"""Title docids: titles as word pieces."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from torch import Tensor

from triever import config
from triever.config import option
from triever.data import byte_letters
from triever.data.records import Document
from triever.data.store import LEARNED
from triever.docids.docid_list import DocidList
from triever.docids.quantize import Device
from triever.docids.schemes.base import Docid, Scheme
from triever.docids.schemes.pieces import learn_pieces, load_pieces
from triever.errors import UsageError
from triever.validation import Json, opened_tokenizer, require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from triever.artifact import Snapshot, Writer

_log = logging.getLogger("triever")

TITLES = 10_000
"""How many titles are taken apart at once."""
UNTITLED = 0.1
"""The share of documents without a title above which a fit warns of them."""
INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""The Unicode categories of characters that nobody sees."""
BACKBONE = "backbone"
"""The tokenizer that is named so is that of a language model, which writes titles in its own tokens."""


@dataclass(frozen=True)
class Pieces:
    """What makes symbols of titles: a tokenizer, the symbol that ends every title, and what a title stands behind."""

    tokenizer: Any  # of the tokenizers library, which is imported late
    stop: int
    behind: str | None = None  # None: nothing, titles are tokenised by themselves

    @classmethod
    def of(cls, tokenizer: Any) -> Pieces:
        """With a stop symbol that follows the last piece; some tokenizers have gaps in their ids."""
        return cls(tokenizer, 1 + max(tokenizer.get_vocab().values(), default=-1))

    def __post_init__(self) -> None:
        self.tokenizer.encode_special_tokens = True  # a title that looks like a mark, such as [SEP], is a title

    @cached_property
    def width(self) -> int:
        """How many symbols there are."""
        return 1 + max([self.stop, *self.tokenizer.get_vocab().values()])

    def symbols(self, names: Sequence[str]) -> list[list[int]]:
        """The pieces of titles, without the end."""
        if self.behind is None:
            return [encoding.ids for encoding in self.tokenizer.encode_batch(list(names), add_special_tokens=False)]
        return [[piece for piece in pieces if piece != self.stop] for pieces in self._in_context(self.behind, names)]

    def shown(self, symbol: int) -> str:
        """A piece as a person reads it, without spaces."""
        piece = self.tokenizer.id_to_token(symbol) or ""
        return byte_letters.exact(piece) if self._by_bytes and byte_letters.are_bytes(piece) else _escaped(piece)

    def number(self, text: str) -> int | None:
        """The piece that is shown so, if there is one."""
        pieces = [byte_letters.token_of(text)] * self._by_bytes + [_unescaped(text)]
        return next((found for piece in pieces if (found := self.tokenizer.token_to_id(piece)) is not None), None)

    @cached_property
    def _by_bytes(self) -> bool:
        return byte_letters.has_bytes(self.tokenizer)

    def _in_context(self, behind: str, names: Sequence[str]) -> Iterator[list[int]]:
        """The tokens that titles have behind a text, which are others than those of a title that begins a text."""
        space = "" if behind[-1:].isspace() else " "
        texts = [space + " ".join(name.split()) for name in names]
        before = self.tokenizer.encode(behind, add_special_tokens=False).ids
        wholes = self.tokenizer.encode_batch([behind + text for text in texts], add_special_tokens=False)
        for text, whole in zip(texts, wholes, strict=True):
            apart = whole.ids[: len(before)] == before
            yield whole.ids[len(before) :] if apart else self.tokenizer.encode(text, add_special_tokens=False).ids


@dataclass(eq=False)
class Title(Scheme):
    """The title as word pieces, and a stop symbol. Equal titles share a docid, and a title may be a prefix of another.

    With a backbone's tokenizer, symbol i is the backbone's token i, and the stop symbol comes after the last. Where a
    language model writes titles in its own tokens, they are tokenised as they stand behind its prompt, and the token
    that ends a text is the stop symbol.
    """

    kind: ClassVar[str] = "title"
    if_tied: ClassVar[str] = (
        "unless they are passages of one document, fit generative with docids=semantic, or give every document a title "
        "of its own"
    )

    vocabulary: int = option(8000, "largest number of word pieces, which are learned from the titles")
    tokenizer: str = option(
        "",
        "a folder or tokenizer.json whose pieces to use; backbone: a causal backbone writes titles in its own tokens; "
        "empty learns them from the titles",
    )
    most: int = option(64, "largest number of pieces in a docid; titles that agree in all of these share a docid")

    _given: Pieces | None = field(default=None, init=False, repr=False)
    _pieces: Pieces | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        config.validate(self)
        if not 100 <= self.vocabulary <= 10**7:
            problem = f"vocabulary = {self.vocabulary} should be from 100 to 10,000,000"
            raise UsageError(problem, "the default is 8000")
        if self.most < 1:
            raise UsageError(f"most = {self.most} should be above zero", "the default is 64")

    @classmethod
    def by(cls, tokenizer: Tokenizer, most: int = 64) -> Title:
        """A scheme with the pieces of a given tokenizer."""
        made = cls(most=most)
        made._given = Pieces.of(tokenizer)
        return made

    def written_by(self, pieces: Pieces) -> Title:
        """The same scheme for a language model that writes titles in these, which are its tokens."""
        made = replace(self)
        made._given = pieces
        return made

    @property
    def in_tokens(self) -> bool:
        """Whether titles are in the tokens of the language model that writes them."""
        return self.tokenizer == BACKBONE

    @property
    def width(self) -> int:
        return self._fitted.width

    @property
    def stop(self) -> int:
        return self._fitted.stop

    @property
    def _fitted(self) -> Pieces:
        if self._pieces is None:
            raise UsageError("the word pieces are not learned yet", "call fit first")
        return self._pieces

    def fit(
        self, documents: Sequence[Document], vectors: Tensor | None = None, device: Device = None
    ) -> Sequence[Docid]:
        step = -(-len(documents) // LEARNED)
        learned = _Names(documents[::step] if step > 1 else documents)
        self._pieces = self._given or Pieces.of(self._new_tokenizer(learned))
        names = _Names(documents)
        stream = iter(names)
        docids = DocidList.of(map(self._docids, iter(lambda: list(islice(stream, TITLES)), [])))
        names.warn()
        return docids

    def _docids(self, names: Sequence[str]) -> list[Docid]:
        return [(*symbols[: self.most], self.stop) for symbols in self._fitted.symbols(names)]

    def _new_tokenizer(self, names: Iterable[str]) -> Tokenizer:
        if self.in_tokens:
            problem = "tokenizer = backbone needs a causal language model that writes the titles"
            raise UsageError(problem, "use the system generative with a causal backbone such as smollm2")
        if not self.tokenizer:
            return learn_pieces(names, self.vocabulary)
        return load_pieces(self.tokenizer, words=(BACKBONE,))

    def place(self, document: Document, vector: Tensor | None = None) -> Docid:
        return self._docids([_name(document)])[0]

    def tied_hint(self, length: int) -> str:
        cut = f"these titles are cut behind {self.most} pieces: raise docids.most if they differ later; "
        return (cut if length > self.most else "") + self.if_tied

    def readable(self, docid: Docid) -> str:
        return " ".join(map(self._fitted.shown, docid[:-1]))

    def symbol(self, symbol: int) -> str:
        return "end" if symbol == self.stop else self._fitted.shown(symbol)

    def has_symbols(self, symbols: np.ndarray) -> bool:
        return {*self._fitted.tokenizer.get_vocab().values(), self.stop}.issuperset(symbols.tolist())

    def parse(self, text: str) -> Docid:
        symbols: list[int] = []
        for piece in text.split(" ") if text else []:
            symbol = self._fitted.number(piece)
            if symbol is None:
                raise UsageError(f"{piece!r} is not one of the word pieces", "write the docid as Triever shows it")
            symbols.append(symbol)
        return (*symbols, self.stop)

    def write(self, writer: Writer) -> dict[str, Json]:
        # It gets its own file: a backbone's tokenizer has megabytes, and every change rewrites the manifest.
        pieces = self._fitted
        writer.json("docid_pieces", json.loads(pieces.tokenizer.to_str()))
        return {} if pieces.behind is None else {"stop": pieces.stop, "behind": pieces.behind}

    def read(self, snapshot: Snapshot, state: dict[str, Json]) -> None:
        tokenizer = opened_tokenizer(snapshot.json("docid_pieces"))
        self._pieces = _read_pieces(tokenizer, state) if self.in_tokens else Pieces.of(tokenizer)


def _read_pieces(tokenizer: Tokenizer, state: dict[str, Json]) -> Pieces:
    stop, behind = state.get("stop"), state.get("behind")
    require(type(stop) is int and 0 <= stop < 2**31, "the symbol that ends its titles is no number")
    require(isinstance(behind, str), "what its titles stand behind is no text")
    return Pieces(tokenizer, cast("int", stop), cast("str", behind))


def _escaped(piece: str) -> str:
    r"""A piece with its spaces escaped, because spaces separate pieces in a readable docid.

    >>> _escaped("a b"), _unescaped(r"a\_b")
    ('a\\_b', 'a b')
    """
    return piece.replace("\\", r"\\").replace(" ", r"\_")


def _unescaped(piece: str) -> str:
    return re.sub(r"\\(.)", lambda hit: " " if hit[1] == "_" else hit[1], piece)


@dataclass
class _Names:
    """The names of documents, which are read anew whenever they are asked for: they may be too many for memory."""

    documents: Iterable[Document]
    count: int = 0  # of those that were read last
    untitled: int = 0  # of these have no title

    def __iter__(self) -> Iterator[str]:
        self.count = self.untitled = 0
        for document in self.documents:
            self.count += 1
            self.untitled += not has_title(document)
            yield _name(document)

    def warn(self) -> None:
        """Warn where ids are written instead of many titles."""
        if self.untitled > UNTITLED * self.count:
            problem = f"{self.untitled:,} of {self.count:,} documents have no title, so their ids are written instead"
            hint = "give every document a title, or fit generative with docids=semantic"
            _log.warning("%s, which tell a model little; %s", problem, hint)


def has_title(document: Document) -> bool:
    """Whether a title can be seen: blanks, and characters that only control or format others, are none.

    >>> [has_title(Document("d", "", title)) for title in ("Tea", " ", "\u200b")]
    [True, False, False]
    """
    return any(unicodedata.category(letter) not in INVISIBLE for letter in document.title)


def _name(document: Document) -> str:
    return document.title if has_title(document) else document.id
