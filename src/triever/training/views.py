"""Views: the texts that stand for a document while a model learns its docid, and batches that mix several views.

`labelled` has the queries that people judged, `generated` those that a query writer wrote (D2Q), `first` the
beginning of the text (FirstP), `chunks` pieces from anywhere in it (DaQ). Texts come as tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from triever.config import option, validate
from triever.docids.docid_list import DocidList
from triever.errors import UsageError, nearest
from triever.models.tokens import TextTokenizer, Tokens, framed, places
from triever.training.epochs import chance_of, epoch_batches
from triever.training.pairs import Pairs

VIEWS = {"labelled": "judged queries", "generated": "written queries", "first": "FirstP", "chunks": "DaQ"}
ALSO = {"d2q": "generated", "firstp": "first", "daq": "chunks"}
"""Other names for views, as the papers have them."""
IGNORED = -100
"""Fills a row behind the end of its docid; the loss ignores it."""


@dataclass(frozen=True)
class ViewOptions:
    """The views of a document: `ViewOptions(names=("labelled", "chunks"))`."""

    names: tuple[str, ...] = option(
        (),
        "views: labelled, generated (d2q), first (firstp), chunks (daq); by default all that exist except first",
    )
    weights: tuple[float, ...] = option((), "how often each view is drawn, in the order of names; by default all alike")
    length: int = option(64, "tokens in a beginning or a chunk")
    count: int = option(10, "chunks of each document, if fresh=false")
    fresh: bool = option(True, "draw new chunks in every pass instead of keeping the same")
    questions: int = option(0, "use only the first so many generated queries of each document; 0 uses all")

    def __post_init__(self) -> None:
        validate(self)  # first, because it splits a text of names into a tuple
        object.__setattr__(self, "names", tuple(ALSO.get(name, name) for name in self.names))
        for name in self.names:
            if name not in VIEWS:
                raise UsageError(f"views.names has {name!r}, which is not a view", nearest(name, [*VIEWS, *ALSO]))
        if len(set(self.names)) < len(self.names):
            raise UsageError(
                f"views.names = {','.join(self.names)} has a name twice", "set its weight in views.weights instead"
            )
        if self.weights and (len(self.weights) != len(self.names) or min(self.weights) <= 0):
            raise UsageError(
                f"views.weights = {self.weights} does not fit {len(self.names)} views",
                "give a weight above zero for each",
            )
        if self.questions < 0:
            raise UsageError(f"views.questions = {self.questions} should not be negative", "0 takes all questions")
        if self.length < 3 or self.count < 1:
            problem = f"a value is too small: views.length = {self.length}, views.count = {self.count}"
            raise UsageError(problem, "set length to 3 or more (special tokens count too), and count to 1 or more")


class View(Protocol):
    """Examples, each a text and the document that it stands for."""

    def __len__(self) -> int: ...

    def take(self, examples: np.ndarray, chance: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The texts of these examples, and the rows of their documents."""
        ...

    def covered(self) -> np.ndarray:
        """The rows of the documents that have an example."""
        ...


@dataclass(frozen=True)
class Labelled:
    """Judged queries."""

    pairs: Pairs
    tokens: Tokens

    @property
    def texts(self) -> Sequence[str]:
        """The queries as they were asked."""
        return self.pairs.texts

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, examples: np.ndarray, chance: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The queries, each with one of its relevant documents, drawn at random."""
        starts, counts = self.pairs.start[examples], np.diff(self.pairs.start)[examples]
        return self.tokens.take(examples), self.pairs.relevant[starts + chance.integers(counts)]

    def covered(self) -> np.ndarray:
        """The rows of the documents that are relevant to any query."""
        return np.unique(self.pairs.relevant)


@dataclass(frozen=True)
class Generated:
    """Queries that were written for documents."""

    tokens: Tokens
    documents: np.ndarray  # (queries,)
    texts: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.documents)

    def take(self, examples: np.ndarray, chance: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The queries with their documents."""
        return self.tokens.take(examples), self.documents[examples]

    def covered(self) -> np.ndarray:
        """The rows of the documents that have a generated query."""
        return np.unique(self.documents)


def questions_of(views: Mapping[str, View]) -> dict[str, Labelled | Generated]:
    """The views that have questions, judged ones first."""
    found = {name: view for name, view in views.items() if isinstance(view, Labelled | Generated)}
    return dict(sorted(found.items(), key=lambda item: isinstance(item[1], Generated)))


@dataclass(frozen=True)
class Chunks:
    """Pieces of documents: fresh ones each time, `count` fixed ones, or with `count` 0 only the beginning.

    They stand for queries, so each has around it what the model expects around every query.
    """

    documents: Tokens  # with the special tokens before and after every text
    tokenizer: TextTokenizer
    length: int
    count: int
    fresh: bool
    seed: int = 0
    around: tuple[Sequence[int], Sequence[int]] | None = None
    """What stands before and behind each piece; None: what stands before and behind documents."""

    def __len__(self) -> int:
        return len(self.documents) * (1 if self.fresh or not self.count else self.count)

    def take(self, examples: np.ndarray, chance: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The pieces with their documents."""
        rows = examples % len(self.documents)
        share = chance.random(len(examples)) if self.fresh else self._fixed[examples] if self.count else 0.0
        return self._pieces(rows, np.broadcast_to(share, rows.shape)), rows

    @cached_property
    def _fixed(self) -> np.ndarray:
        """(examples,) where in its document each piece begins, as a share of the last possible position."""
        return np.random.default_rng((self.seed, 64)).random(len(self))

    def _pieces(self, rows: np.ndarray, share: np.ndarray) -> Tokens:
        special = len(self.tokenizer.before)  # tokens before the text of a document
        before, after = self.around or (self.tokenizer.before, self.tokenizer.after)
        room = max(0, self.length - len(before) - len(after))
        inner = self.documents.starts[rows + 1] - self.documents.starts[rows] - special - len(self.tokenizer.after)
        length = np.clip(inner, 0, room)
        first = (share * (inner - length + 1)).astype(np.int64)
        pieces, begin = framed(length, before, after, self.documents.flat.dtype)
        source = self.documents.starts[rows] + special + first
        pieces.flat[places(begin, length)] = self.documents.flat[places(source, length)]
        return pieces

    def covered(self) -> np.ndarray:
        """The rows of all documents that are not empty."""
        return np.flatnonzero(self.documents.lengths > len(self.tokenizer.before) + len(self.tokenizer.after))


@dataclass(frozen=True)
class Behind:
    """A view whose documents come after `offset` other documents."""

    view: View
    offset: int

    def __len__(self) -> int:
        return len(self.view)

    def take(self, examples: np.ndarray, chance: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The texts of the view, with the rows that their documents have after the others."""
        tokens, rows = self.view.take(examples, chance)
        return tokens, rows + self.offset

    def covered(self) -> np.ndarray:
        """The rows of the documents that have an example."""
        return self.view.covered() + self.offset


@dataclass(frozen=True)
class Drawn:
    """The share of one view in a batch: the numbers of its examples, their texts, and the document of each."""

    name: str
    view: View
    examples: np.ndarray  # (texts,)
    tokens: Tokens
    rows: np.ndarray  # (texts,)

    def relevant(self) -> list[np.ndarray]:
        """For each text, the rows of all documents that are known to be relevant to it."""
        if isinstance(self.view, Labelled):
            return [self.view.pairs.of(int(example)) for example in self.examples]
        return list(self.rows[:, None])


@dataclass(frozen=True)
class ViewBatches:
    """A round of batches of texts and their docids. A batch is made when it is asked for, from its number alone."""

    views: Mapping[str, View]
    weights: Sequence[float]
    targets: np.ndarray  # (documents, longest) their docids, IGNORED behind the end of each
    batch: int
    steps: int
    seed: int
    round: int = 0
    pad: int = 0

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        return self.batch_of(self.drawn(step))

    def drawn(self, step: int) -> list[Drawn]:
        """The examples that each view contributes to a batch."""
        chance = chance_of(step, self.steps, self.seed, self.round)
        chosen = zip(self.views.items(), self._orders, strict=True)
        return [
            Drawn(name, view, order[step], *view.take(order[step], chance))
            for (name, view), order in chosen
            if order.shape[1]
        ]

    def batch_of(self, drawn: Sequence[Drawn]) -> dict[str, Tensor]:
        """The texts of all views together, with the docids that the model should write for them."""
        tokens = drawn[0].tokens
        for part in drawn[1:]:
            tokens = tokens.joined(part.tokens)
        ids, mask = tokens.all_padded(self.pad)
        targets = self.targets[np.concatenate([part.rows for part in drawn])]
        return {"ids": ids, "mask": mask, "targets": torch.from_numpy(_trimmed(targets))}

    @cached_property
    def _orders(self) -> list[np.ndarray]:
        """For each view, the (steps, share) numbers of its examples in every batch."""
        shares = split_by(self.weights, self.batch)
        return [
            epoch_batches(len(view), share, self.steps, self.round, self.seed, number)
            for number, (view, share) in enumerate(zip(self.views.values(), shares, strict=True))
        ]


def split_by(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to the weights, as nearly as possible, that sum to the total.

    >>> split_by([1, 1, 2], 10)
    [2, 3, 5]
    """
    ends = np.rint(np.cumsum(weights) / np.sum(weights) * total).astype(int)
    return np.diff(np.concatenate([[0], ends])).tolist()


def check_shares(names: Sequence[str], weights: Sequence[float], batch: int) -> None:
    """Refuse a batch that is too small to have an example of every view."""
    for name, share in zip(names, split_by(weights, batch), strict=True):
        if not share:
            problem = f"training.batch = {batch} is too small for {len(names)} views: it has no room for {name}"
            raise UsageError(problem, "raise training.batch, leave a view out, or make views.weights more equal")


def _trimmed(targets: np.ndarray) -> np.ndarray:
    """The targets without the columns behind the end of all of them."""
    return targets[:, : max(1, int((targets != IGNORED).sum(1).max(initial=1)))]


def docid_rows(docids: Sequence[Sequence[int]]) -> np.ndarray:
    """(documents, longest) the docids as rows, IGNORED behind the end of each."""
    listed = docids if isinstance(docids, DocidList) else DocidList.of([docids])
    lengths = np.diff(listed.start)
    rows = np.full((len(docids), max(1, int(lengths.max(initial=1)))), IGNORED, np.int64)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = listed.flat
    return rows


def coverage(views: Mapping[str, View], documents: int) -> dict[str, dict[str, float]]:
    """For each view, its number of examples and the share of the documents that they cover."""
    return {
        name: {"examples": len(view), "documents covered": round(len(view.covered()) / max(1, documents), 4)}
        for name, view in views.items()
    }
