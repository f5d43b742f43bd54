"""The contract that every retriever keeps, and the part of it that all of them share.

A retriever is a dataclass: its fields are its options, for Python, recipes and the command line
alike. `fit` reads a dataset; after that it searches, explains, takes and drops documents, and saves
itself as an artifact that `load` opens again.

Threads may share a retriever. What it searches is one value that is replaced and never changed, so a search or a save
sees one state, whole, and waits for nobody; writers take turns.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from triever import artifact, config, plugins, work_folder
from triever.arguments import as_path, listed, seconds, table, text, whole
from triever.config import option
from triever.data import shard_documents
from triever.data.cut_documents import SPANS, CutDocuments
from triever.data.cutting import Cut
from triever.data.datasets import Dataset
from triever.data.records import Answer, Document, Query, Result, normalise
from triever.data.splits import named_splits
from triever.data.store import DocumentStore
from triever.engines.base import Engine, Parts
from triever.engines.panels import Beam, Panel
from triever.errors import ArtifactError, UnknownKind, UsageError, nearest
from triever.held import PASSAGES, Held
from triever.memory_parts import Products, Size, index_size, part_sizes
from triever.printable import an, count_of
from triever.progress import phase, track
from triever.shards import Bounds, Shards, in_shards
from triever.training import fit_fingerprints
from triever.validation import require, require_table, require_text
from triever.version import __version__

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidNode

KINDS = {
    "bm25": "triever.retrievers.bm25:BM25",
    "dense": "triever.retrievers.dense:Dense",
    "fused": "triever.retrievers.fusion:Fused",
    "gdr": "triever.retrievers.gdr:GDR",
    "given": "triever.retrievers.given:GivenVectors",
    "generative": "triever.retrievers.generative:Generative",
    "contextual": "triever.retrievers.contextual:Contextual",
    "multivector": "triever.retrievers.multivector:MultiVector",
    "reranked": "triever.retrievers.reranker:Reranked",
    "reatt": "triever.retrievers.reatt:ReAtt",
    "run": "triever.retrievers.recorded:GivenRun",
    "answerer": "triever.retrievers.answerer:Answerer",
}
"""Every retriever of Triever by its name on the command line; imported only when it is asked for."""

EARLIER: Mapping[str, Mapping[str, object]] = {"codebook": {"balanced": False}}
"""By kind, what options were before they existed, where that is not their default: older artifacts lack them."""

PLACES = {"ray": "triever.integrations.ray:ray_shards"}
"""By the name of a place other than this process what opens shards there; imported only when it is asked for."""

SHARDS = "shards"
"""Where the state of an artifact says which rows its shards have."""

ROOT = "root"
"""Where an origin notes the folder at which ids of text files begin."""

MADE_FROM = "made_from"
"""Where the state of an artifact has the facts of its card that are neither options nor its origin."""

WEIGHTS = "model weights"
"""The name of the weights on a card."""

_log = logging.getLogger("triever")
FEW_HELD_OUT = 10
"""Held-out queries below which it is said that they are few to choose a step by."""
FEW_HELD_OUT_MESSAGE = (
    "%s of %s %s held out (training.holdout=%g), so the step that is kept is %s: give more training "
    "queries, or raise training.holdout to judge by more of them, or set it to 0 to learn from all"
)

E = TypeVar("E", bound=Engine)


@dataclass(frozen=True)
class Explanation:
    """Why these hits came: for each of them, named parts whose weights add up to its score.

    `panels` has what there is to see of the search: `beam`, the prefixes that were kept and pruned, and `matches`, the
    tokens that fit each other. Each is drawn from its own data; `to_dict` has all of it as plain values.
    """

    query: str
    result: Result
    parts: tuple[Parts, ...]
    note: str = ""
    panels: tuple[Panel, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        hits = [
            {"id": hit.id, "score": hit.score, "docid": hit.docid, "logprob": hit.logprob, "parts": dict(parts)}
            for hit, parts in zip(self.result, self.parts, strict=True)
        ]
        panels = [panel.to_dict() for panel in self.panels]
        own = {"query": self.query, "note": self.note, "certificate": self.result.certificate}
        return {**own, "hits": hits, "panels": panels}

    def __str__(self) -> str:
        lines = [self.note] if self.note else []
        for hit, parts in zip(self.result, self.parts, strict=True):
            inside = " + ".join(f"{weight:.3f} {name}" for name, weight in parts)
            lines.append(f"{hit.id}  {hit.score:.3f} = {inside}")
        return "\n".join([*lines, *(str(panel) for panel in self.panels if isinstance(panel, Beam))])


@runtime_checkable
class Asks(Protocol):
    """A retriever that answers questions from what it finds."""

    def ask_many(
        self, questions: Sequence[str | Query], *, where: Mapping[str, object] | None = None, matches: bool = True
    ) -> list[Answer]:
        """The answer to each question, with what it was written from, and with `matches` which tokens fit."""
        ...


@dataclass(eq=False)
class Retriever(ABC, Generic[E]):
    """What every system is: BM25, dense, generative."""

    kind: ClassVar[str]
    search_only: ClassVar[tuple[str, ...]] = ()
    """Options that say how to search and nothing else, so that a fitted retriever may get others."""
    gives_probabilities: ClassVar[bool] = True
    """Whether its scores may be probabilities or become some; where they never are, this is known before a training."""
    _held: Held[E] | None = field(default=None, init=False, repr=False)
    cut: Cut = option(
        Cut(),
        "which long documents are searched by their passages; inside of another system that one's option counts",
        shared=True,
    )

    @classmethod
    def of_options(cls, value: Any, where: str) -> Retriever[Any]:
        """A retriever that is an option of another: itself, its name, a saved folder, or a table with its kind."""
        if isinstance(value, Retriever):
            return value
        if isinstance(value, Path) or (isinstance(value, str) and os.path.isdir(value) and not is_kind(value)):
            return load(as_path(value))
        values = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
        kind = values.pop("kind", None)
        if not isinstance(kind, str):
            raise UsageError(f"{where} = {value!r} does not name a system", f"for example: {where}.kind=bm25")
        return config.build(system(kind), values, where=f"{where}.")

    # What a system has to bring: how an engine is learned, and how it is read again.

    @abstractmethod
    def learn(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> E:
        """The engine that searches these documents; `work` is a folder for what a longer training leaves behind."""

    @abstractmethod
    def read(self, snapshot: artifact.Snapshot) -> E:
        """The engine of an artifact that was saved with these options."""

    def configured(self, engine: E) -> E:
        """The engine, searched as the options of this retriever say."""
        return engine

    def tuned(self, engine: E, documents: Sequence[Document], store: DocumentStore) -> E:
        """The engine after a training on documents that it has just placed, where that is wanted."""
        return engine

    @property
    def members(self) -> tuple[Retriever[Any], ...]:
        """The retrievers that it is made of."""
        return ()

    @property
    def reads_expansions(self) -> bool:
        """Whether it learns from expansions of documents."""
        return any(part.reads_expansions for part in self.members)

    @property
    def tuning(self) -> Any:
        """How it is trained, if it is."""
        training = getattr(self, "training", None)
        return training if training and training.steps else None

    def learns_queries(self, dataset: Dataset) -> bool:
        """Whether it learns from judged queries."""
        return self.tuning is not None

    # What a person uses.

    def fit(self, dataset: Dataset, *, work: str | Path | None = None) -> Self:
        """Learn a dataset: its documents, and where the system trains, its training queries.

        With a folder to work in, a training that was interrupted goes on where it was.
        """
        if not isinstance(dataset, Dataset):
            raise UsageError(
                f"fit takes a Dataset, not {type(dataset).__name__}", "load one with triever.load_dataset(...)"
            )
        store = DocumentStore.of(track(dataset.documents(), "reading", unit="documents"))
        if not len(store):
            raise UsageError(f"{dataset.name} has no documents", "check it with: triever data info")
        store.fingerprint = dataset.fingerprint  # taken as the documents passed
        with self._turn, phase(f"fitting {self.kind}"):
            self._held = self._fitted_to(dataset, store, work)
        return self

    def _fitted_to(self, dataset: Dataset, store: DocumentStore, work: str | Path | None) -> Held[E]:
        """What it holds once it has learned a dataset, whose documents are in the store."""
        origin = {"data": dataset.name, "fitted on": dataset.fingerprint}
        origin |= {ROOT: dataset.root} if dataset.root else {}
        cut = self._cut(dataset, store)
        data, searched = (cut.dataset(dataset, store), cut.passages) if cut else (dataset, store)
        description = {"kind": self.kind, "options": config.to_dict(self), "documents": dataset.fingerprint}
        description |= {"expansions": fit_fingerprints.of_expansions(store), **self.lessons(data, searched)}
        engine = self.learn(data, searched, work_folder.claim(as_path(work), description) if work else None)
        return Held(store, engine, origin, fit_fingerprints.fingerprint([description]), cut)

    def _cut(self, dataset: Dataset, store: DocumentStore) -> CutDocuments | None:
        """The passages of the documents, where these are to be searched."""
        return CutDocuments.of(store, self.cut) if self.cut.cuts(dataset) else None

    def lessons(self, dataset: Dataset, store: DocumentStore) -> dict[str, Any]:
        """What is learned from besides documents, as fingerprints; where that is impossible, it is said here, early."""
        parts = [part.fingerprint_for(store) or part.lessons(dataset, store) for part in self.members]
        lessons: dict[str, Any] = {"parts": parts} if parts else {}
        training = self.tuning
        if training:
            lessons["backbone"] = fit_fingerprints.of_folder(getattr(self, "backbone", ""))
        return {**lessons, "queries": self.learned_queries(dataset, store)} if self.learns_queries(dataset) else lessons

    def learned_queries(self, dataset: Dataset, store: DocumentStore) -> str:
        """A fingerprint of the queries that it learns; where it cannot learn from them, that is said here."""
        from triever.training.pairs import held_out, pairs_of  # needs PyTorch, as every training does

        training = self.tuning
        pairs = pairs_of(dataset, training.split, store)
        train_on, held = held_out(pairs, training.holdout)
        if not len(train_on):
            raise UsageError("all training queries are held out", "lower training.holdout")
        tell_of_few_held_out(len(held), len(pairs), training)
        return fit_fingerprints.of_pairs(pairs)

    def fingerprint_for(self, store: DocumentStore) -> str:
        """A fingerprint of what it holds, if it is fitted to these very documents; else nothing."""
        held = self._held_for(store)
        return held.fingerprint if held else ""

    def _held_for(self, store: DocumentStore) -> Held[E] | None:
        """What it holds, if it is fitted to these very documents, and where it reads expansions, to these."""
        held = self._held
        if held is None or held.searched.fingerprint != store.fingerprint:
            return None
        fitted, other = (documents.table.column("expansions") for documents in (held.searched, store))
        return held if fitted.equals(other) or not self.reads_expansions else None

    def engine_for(self, dataset: Dataset, store: DocumentStore, work: Path | None = None) -> E:
        """The engine of these documents, as a part of another retriever: the one it has, or one that it learns."""
        if held := self._held_for(store):
            return held.engine
        if self._held:
            message = "the fitted %s is fitted again, because its documents or their expansions differ from those of %s"
            _log.warning(message, self.kind, dataset.name)
        return self.learn(dataset, store, work)

    def search(self, query: str | Query, k: int = 10, *, where: Mapping[str, object] | None = None) -> Result:
        """The k best documents for a query, best first; fewer where fewer match.

        `where` filters by metadata: `{"year": ">=2020", "lang": ["de", "fr"]}`.
        """
        return self.search_many([query], k, where=where)[0]

    def search_many(
        self, queries: Sequence[str | Query], k: int = 10, *, where: Mapping[str, object] | None = None
    ) -> list[Result]:
        """The same for many queries at once, in their order."""
        return _checked_results(self._checked().among(where).search(texts_of(queries), whole(k, "k")))

    def explain(self, query: str | Query, k: int = 10, *, where: Mapping[str, object] | None = None) -> Explanation:
        """The same search, with what each score is made of, and what there is to see of the search."""
        held, text = self._checked().among(where), texts_of([query])[0]
        result, parts, panels = held.explain(text, whole(k, "k"))
        return Explanation(text, _checked_results([result])[0], parts, result.note, panels)

    def browse(
        self, prefix: Sequence[int | str] = (), *, samples: int = 3, offset: int = 0, limit: int = 100
    ) -> DocidNode:
        """The symbols that may follow a prefix of docids, with the documents below each, as many as a page has.

        A prefix has numbers of symbols, or their texts: `browse([3, 1])`, `browse(["how", "to"])`.
        """
        held = self._checked()
        tree = held.docid_tree
        if tree is None:
            hint = "browse one that writes docids: generative, contextual or gdr"
            raise UsageError(f"{an(self.kind)} retriever has no docids", hint)
        return tree.node(
            held.store, prefix, whole(samples, "samples", 0), whole(offset, "offset", 0), whole(limit, "limit", 1)
        )

    @property
    def has_docids(self) -> bool:
        """Whether its documents have docids, so that they can be browsed."""
        return self._checked().docid_tree is not None

    @property
    def fitted_on(self) -> str:
        """The name of the dataset that it was fitted to."""
        return str(self._checked().origin.get("data", ""))

    def searched_with(self, values: Mapping[str, Any]) -> Self:
        """The same model and documents with other options of the search, from loosely typed values."""
        table(values, "values", '{"search_options": {"method": "exact"}}')
        held, known = self._checked(), config.options(type(self))
        settled = [name for name in values if name in known and name not in self.search_only]
        if settled:
            problem = f"{settled[0]} of {an(self.kind)} retriever cannot be changed after it is fitted"
            may = f"; these options can be changed: {', '.join(self.search_only)}" if self.search_only else ""
            raise UsageError(problem, f"fit a new retriever with it{may}")
        other = config.build(type(self), config.merged(config.to_dict(self), values))
        return other.holding(replace(held, engine=other.configured(held.engine)))

    def holding(self, held: Held[E]) -> Self:
        """This retriever, which holds something from now on."""
        self._held = held
        return self

    def add(self, documents: Iterable[Document]) -> None:
        """Take new documents in. An id that is there already is refused, and then nothing is added."""
        # Before its turn: they may come slowly, or from a search of this very retriever.
        new = listed(documents, Document, "add", "documents")
        with self._turn:
            held = self._checked()
            self._held = replace(held.with_added(new, self.tuned), origin=_changed(held.origin, added=len(new)))

    def delete(self, ids: Iterable[str]) -> None:
        """Drop documents by id. An id that is not there is refused, and then nothing is dropped."""
        gone = [normalise(document_id) for document_id in listed(ids, str, "delete", "ids")]
        with self._turn:
            held = self._checked()
            keep = held.store.kept(gone)
            origin = _changed(held.origin, deleted=int((~keep).sum()))
            self._held = replace(held.without(keep), origin=origin)

    @property
    def _turn(self) -> threading.RLock:
        """What a writer holds while it makes the next state out of the last one."""
        return vars(self).setdefault("_turns", threading.RLock())  # in one step, whoever is first

    def __getstate__(self) -> dict[str, Any]:
        """All but the turns of writers: a copy has its own."""
        return {name: value for name, value in vars(self).items() if name != "_turns"}

    def save(self, path: str | Path, *, replace: bool = True, shards: int | None = None) -> None:
        """Write an artifact: whole, or not at all.

        What Triever saved there before is replaced, as by any save; with `replace=False` it is refused, as
        `triever fit` does. A folder of other files that is no artifact is always refused.

        With `shards`, what is searched is put into so many shards, which `load` searches together, here or on several
        machines. Such an artifact is not changed any more.
        """
        held = self._checked()
        bounds = None
        if shards is not None:
            bounds = Bounds.of(len(held.store), whole(shards, "shards", 1), held.cut.owners if held.cut else None)
        with phase(f"saving {path}"), artifact.writing(as_path(path), replace=replace) as writer:
            writer.bounds = bounds
            self._save(held, writer)

    @property
    def documents(self) -> DocumentStore:
        """The documents it holds."""
        return self._checked().store

    @property
    def searched(self) -> DocumentStore:
        """What its engine finds, by rows: its documents, or the passages of these."""
        return self._checked().searched

    @property
    def divided(self) -> int:
        """How many documents are so long that they are searched by several passages."""
        cut = self._checked().cut
        return cut.divided if cut else 0

    @property
    def is_fitted(self) -> bool:
        """Whether it has documents to search."""
        return self._held is not None

    @property
    def engine(self) -> E:
        """What searches its documents."""
        return self._checked().engine

    @property
    def root(self) -> str:
        """The folder of text files at which ids begin: a note for who adds files, which nothing here opens."""
        return _root_of(self._checked().origin)

    def keep_root(self, path: str) -> None:
        """Note another root, for text files that are added later."""
        with self._turn:
            held = self._checked()
            self._held = replace(held, origin={**held.origin, ROOT: path})

    @property
    def memory(self) -> dict[str, int]:
        """The bytes of all that it holds once it has searched, by part; `memory_parts.PARTS` says what each is."""
        return {part: size.bytes for part, size in self.sizes.items()}

    @property
    def sizes(self) -> dict[str, Size]:
        """The same with what of it may stay on the disk, and what is on a GPU."""
        return part_sizes(self._checked().stored())

    def memory_for(self, documents: int | None = None) -> dict[str, Products]:
        """What its memory would be with so many documents like these, or is with its own: the arithmetic, by part."""
        held = self._checked()
        return held.products(len(held.store) if documents is None else whole(documents, "documents", 0))

    def with_probabilities(self, queries: Sequence[str | Query], results: Sequence[Result]) -> list[Result]:
        """The results of queries with a log-probability for each hit, where scores are probabilities or become them."""
        return [*results]

    def compared(self, queries: Sequence[str], k: int = 10) -> float | None:
        """How often a query's vector is compared for so many hits, as a share of documents; none without a choice."""
        return None

    @property
    def index_bytes(self) -> int:
        """How many bytes a search looks into, without models and without the documents themselves."""
        sizes = part_sizes(self.engine.stored())
        return index_size({part: size.bytes for part, size in sizes.items()})

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the ids, titles and texts of the documents it holds now."""
        return self.documents.fingerprint

    def __len__(self) -> int:
        return len(self.documents)

    def __bool__(self) -> bool:
        return True  # a retriever without documents is still a retriever

    @property
    def card(self) -> str:
        """What it is and what it was made from, for whoever receives the folder."""
        held = self._checked()
        return self._card(held, _made_from(held))

    def _card(self, held: Held[E], made_from: Mapping[str, Any]) -> str:
        now = {"documents": len(held.store), "fingerprint": held.store.fingerprint, **_counted(held)}
        rows = {"kind": self.kind, **config.to_dict(self), **held.origin, **made_from, **now}
        table = "\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items())
        licence = f"Weights: {made_from[WEIGHTS]}. The documents are inside; their licence is that of the corpus."
        title = f"# A Triever {type(self).__name__} retriever"
        return f"{title}\n\n| what | value |\n| --- | --- |\n{table}\n\n{licence}\n"

    def _checked(self) -> Held[E]:
        if self._held is None:
            raise UsageError(f"this {type(self).__name__} has no documents yet", "call fit, or load a saved one")
        return self._held

    def _save(self, held: Held[E], writer: artifact.Writer) -> None:
        if held.shards:
            raise in_shards()
        made_from = _made_from(held)
        if writer.bounds:
            shard_documents.write(held.store, writer)
        else:
            held.store.write(writer)
        writer.text("card", self._card(held, made_from))
        state = held.engine.write(writer)
        state |= {"origin": dict(held.origin), "documents": len(held.store), "fingerprint": held.store.fingerprint}
        state |= {MADE_FROM: made_from, **_counted(held)}  # for programs, as the card is for people
        state |= {SHARDS: writer.bounds.to_dict()} if writer.bounds else {}
        if held.cut:
            writer.table(PASSAGES, held.cut.table)
        writer.commit(self.kind, config.to_dict(self), state, f"triever {__version__}")


def tell_of_few_held_out(held: int, queries: int, training: Any) -> None:
    """Say where few held-out queries choose the step that is kept."""
    if training.holdout and training.keep == "best" and held < FEW_HELD_OUT:
        few, kept = (f"only {held}", "chosen by these alone") if held else ("none", "the last one")
        counted = count_of(queries, "training query", "training queries")
        are = "is" if held == 1 or queries == 1 else "are"
        _log.warning(FEW_HELD_OUT_MESSAGE, few, counted, are, training.holdout, kept)


def _cell(value: object) -> str:
    r"""A value in a cell of a Markdown table, which has one line, and `|` at its ends alone.

    >>> _cell("a|b\nc")
    'a\\|b\\nc'
    """
    return re.sub(r"\r\n?|\n", r"\\n", str(value).replace("|", r"\|"))


def _made_from(held: Held[Any]) -> dict[str, Any]:
    """What the engine tells of itself, and how many documents have expansions; an option may be called weights too."""
    made_from = held.engine.made_from()
    return {WEIGHTS: made_from.pop("weights", "none"), **made_from, "with expansions": held.store.expanded}


def _counted(held: Held[Any]) -> dict[str, int]:
    """How many passages are searched, where it is these."""
    return {PASSAGES: len(held.searched)} if held.cut else {}


def texts_of(queries: Sequence[str | Query], method: str = "search", noun: str = "query") -> list[str]:
    """The texts of queries, in Unicode NFC; `method` is what takes a single one, and `noun` what it is called."""
    if isinstance(queries, str | bytes | Query | Mapping) or not isinstance(queries, Iterable):
        nouns = "queries" if noun == "query" else f"{noun}s"
        problem = f"{method}_many takes a list of {nouns}, not {type(queries).__name__}"
        raise UsageError(problem, f"for a single {noun} use {method}")
    return [normalise(query.text if isinstance(query, Query) else query) for query in queries]


def questions_of(questions: Sequence[str | Query]) -> list[str]:
    """The texts of questions, in Unicode NFC; a blank one is refused, since a model would answer it all the same."""
    texts = texts_of(questions, "ask", "question")
    if any(not text.strip() for text in texts):
        raise UsageError("the question is empty", "ask something in words")
    return texts


def _checked_results(results: list[Result]) -> list[Result]:
    """Refuse to give out hits that cannot be right: nobody is to rank by something that is not a number."""
    for result in results:
        if not all(math.isfinite(hit.score) for hit in result):
            problem = "a search gave scores that are not finite numbers, so the model is damaged"
            raise ArtifactError(problem, "fit it again, or copy it again from where it came")
    return results


def kept_root(path: str | Path) -> str:
    """The root of a saved retriever, without opening the retriever."""
    with artifact.read(path) as snapshot, artifact.opening(path, snapshot.manifest.kind):
        return _root_of(require_table(snapshot.manifest.state, "origin"))


def _root_of(origin: Mapping[str, Any]) -> str:
    root = origin.get(ROOT)
    return root if isinstance(root, str) and Path(root).is_absolute() else ""


def _changed(origin: Mapping[str, Any], **counts: int) -> dict[str, Any]:
    """The origin, with what was changed since."""
    return {**origin, **{key: origin.get(key, 0) + count for key, count in counts.items()}}


def with_members(systems: Iterable[Retriever[Any]]) -> Iterator[Retriever[Any]]:
    """Systems, and all that they are made of."""
    for system in systems:
        yield system
        yield from with_members(system.members)


def learned_by(systems: Iterable[Retriever[Any]], split: str, holdout: float) -> tuple[Retriever[Any], str] | None:
    """The first of systems and their members that learns queries which are held out of a split, and of which split."""
    for system in with_members(systems):
        training = system.tuning
        # Which queries are held out depends on ids alone: a smaller share is a part of a larger one.
        learned = named_splits(training.split) if training else ()
        shared = [name for name in named_splits(split) if name in learned]
        if shared and training.holdout < holdout:
            return system, shared[0]
    return None


def learned_splits(retriever: Retriever[Any], dataset: Dataset) -> list[str]:
    """The splits whose judged queries a retriever or one of its members learns."""
    systems = [system for system in with_members([retriever]) if system.learns_queries(dataset)]
    return list(dict.fromkeys(split for system in systems for split in named_splits(system.tuning.split)))


def is_kind(name: str) -> bool:
    """Whether a retriever has this name, ours or one that an installed package brings."""
    return name in KINDS or name in plugins.installed(plugins.RETRIEVERS)


def system(name: str) -> type[Retriever[Any]]:
    """The retriever class of a name."""
    if name in KINDS:
        module, _, attribute = KINDS[name].partition(":")
        with phase(f"loading {name}"):  # and PyTorch with it, mostly
            return getattr(importlib.import_module(module), attribute)
    if brought := plugins.find_class(plugins.RETRIEVERS, name, Retriever):
        return brought
    hint = nearest(name, [*KINDS, *plugins.names(plugins.RETRIEVERS, KINDS)])
    what = "system, and no folder," if "/" in name else "system"
    raise UnknownKind(name, f"there is no {what} named {name!r}", hint)


def load(path: str | Path, *, backbone: str | Path | None = None, on: str | None = None) -> Retriever[Any]:
    """Open a saved retriever.

    One whose backbone stayed as it was may only name it. Installed weights are found by their name; for others
    `backbone` is the folder that they lie in, which is refused where no backbone is named. One in shards has them in
    this process, or `on="ray"`: in processes of Ray, here or on several machines.
    """
    given = None if backbone is None else str(as_path(backbone))
    if given is not None and not str(backbone):
        raise UsageError("backbone is empty", "name the folder of the backbone, or leave backbone out")
    opens_shards = _opening_of_shards(on)
    with phase(f"opening {path}"), artifact.read(path) as snapshot:
        try:
            with artifact.opening(path, snapshot.manifest.kind):
                if given and not _names_backbone(snapshot):
                    raise UsageError(f"{path} holds all that it needs, and names no backbone", "leave backbone out")
                return _opened(replace(snapshot, backbone=given), opens_shards)
        except UnknownKind as error:  # its own kind, or that of a part of it
            if error.kind == WRITER:
                problem = f"{path} holds a query writer, which writes questions and does not search"
                raise ArtifactError(problem, "use it with: triever write-queries DATA --writer FOLDER") from error
            problem = f"{path} holds a {error.kind!r}, which neither this Triever nor an installed package knows"
            hint = "install the package that brings it, or run: pip install --upgrade triever"
            raise ArtifactError(problem, hint) from error


def _names_backbone(snapshot: artifact.Snapshot) -> bool:
    """Whether a part of an artifact has only the name of its backbone, as `NamedBackbone` says it."""
    roles = snapshot.manifest.files
    encoders = (snapshot.json(role) for role in roles if f"{role}_weights" in roles)
    return any(isinstance(state, Mapping) and "named" in state for state in encoders)


WRITER = "query-writer"
"""The kind of artifact that is no retriever."""
OpensShards = Callable[[artifact.Snapshot, Bounds], Shards]
"""Opens the shards of an artifact."""


def _opening_of_shards(on: str | None) -> OpensShards | None:
    """What opens shards on other machines, if that is wanted; what is missing for it is said before a file is read."""
    if on is None:
        return None
    if text(on, "on") not in PLACES:
        raise UsageError(f"shards cannot be opened on {on!r}", nearest(on, [*PLACES]))
    module, _, attribute = PLACES[on].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _shards_of(snapshot: artifact.Snapshot, opens_shards: OpensShards | None) -> Shards | None:
    """The shards of an artifact, if it is in shards."""
    if SHARDS in snapshot.manifest.state:
        from triever.index.shard import LocalShards  # needs PyTorch, which a whole BM25 does not

        bounds = Bounds.read(require_table(snapshot.manifest.state, SHARDS), snapshot.rows, snapshot.documents)
        return opens_shards(snapshot, bounds) if opens_shards else LocalShards.of(snapshot, bounds)
    if opens_shards:
        hint = "put it into shards first: triever shard MODEL --into 2 --out FOLDER"
        raise UsageError(f"{snapshot.path} is not in shards, which is what other processes can hold", hint)
    return None


def _opened(snapshot: artifact.Snapshot, opens_shards: OpensShards | None = None) -> Retriever[Any]:
    manifest, state = snapshot.manifest, snapshot.manifest.state
    shards = _shards_of(snapshot, opens_shards)
    snapshot = replace(snapshot, shards=shards)
    _refuse_paths(system(manifest.kind), manifest.options)
    retriever = config.build(system(manifest.kind), _with_earlier(manifest.options, manifest.kind))
    store = shard_documents.read(snapshot, shards) if shards else DocumentStore.read(snapshot, snapshot.documents)
    store.fingerprint = require_text(state, "fingerprint")
    snapshot.text("card")  # which people read, so that it is checked as all else is
    hashes = {role: entry.sha256 for role, entry in manifest.files.items()}
    made = fit_fingerprints.fingerprint([hashes, dict(state)])
    cut = None
    if PASSAGES in state:
        cut = CutDocuments.opened(snapshot.table(PASSAGES, SPANS), store, retriever.cut)
        require(len(cut.passages) == snapshot.rows, "its passages are not as many as its manifest says")
    engine, origin = retriever.read(snapshot), require_table(state, "origin")
    return retriever.holding(Held(store, engine, origin, made, cut, shards))


def _with_earlier(value: Any, kind: object = None) -> Any:
    """Saved options, and in all their tables what EARLIER has for options that are missing."""
    if isinstance(value, list):
        return [_with_earlier(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    own = kind or value.get("kind")
    earlier = EARLIER.get(own, {}) if isinstance(own, str) else {}
    return config.merged(earlier, {key: _with_earlier(part) for key, part in value.items()})


def _refuse_paths(kind: type[Retriever[Any]], options: Mapping[str, Any]) -> None:
    """Refuse options that name a saved retriever by its folder: all that an artifact needs is inside it."""
    for name, hint in get_type_hints(kind).items():
        if name not in options or not _takes_retriever(hint):
            continue
        values = options[name] if isinstance(options[name], list) else [options[name]]
        for value in values:
            if isinstance(value, Mapping) and isinstance(value.get("kind"), str):
                _refuse_paths(system(value["kind"]), value)
            elif value is not None and str not in get_args(hint):  # a text that is never opened does no harm
                raise ValueError(
                    f"its option {name} = {value!r} names a folder, but an artifact holds all of its parts"
                )


def _takes_retriever(hint: Any) -> bool:
    return (get_origin(hint) or hint) is Retriever or any(map(_takes_retriever, get_args(hint)))


@contextmanager
def edit(path: str | Path, *, wait: float = 0, backbone: str | Path | None = None) -> Generator[Retriever[Any]]:
    """A saved retriever to change: saved again at the end of the block if it was changed, untouched after an error.

    Holds the right to write from load to save, so that two editors cannot lose each other's work. While
    another process or thread has that right, it waits for at most so many seconds. `backbone` is as in `load`.
    """
    path, wait = as_path(path), seconds(wait, "wait")
    with artifact.read(path):  # a path with a mistake in it must not make a folder
        pass
    with artifact.writing(path, wait=wait) as writer:
        retriever = load(path, backbone=backbone)
        before = retriever._checked()
        yield retriever
        if retriever._checked() is before:
            return
        with phase(f"saving {path}"):
            retriever._save(retriever._checked(), writer)
