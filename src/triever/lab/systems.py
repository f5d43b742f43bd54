"""Systems as the command line names them: `bm25`, `bm25:k1=0.9,b=0.4`, a TOML file, a saved folder, a server, a run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from triever import config
from triever.data.datasets import Dataset
from triever.data.readers import Problems, read_run
from triever.data.records import Run
from triever.errors import UsageError
from triever.evaluation.compare import questions, search_all, warn_of_other_documents
from triever.remote import Searcher, connect, is_address
from triever.retriever import Retriever, is_kind, load, system

_log = logging.getLogger("triever")


Check = Callable[[Mapping[str, Searcher]], None]
"""What refuses systems that cannot do what is asked of them."""


def new_system(system_or_file: str, settings: Sequence[str]) -> Retriever:
    """A system that has not been fitted, by its name or by a TOML file with its kind and options."""
    kind, values = _kind_and_values(system_or_file)
    return config.build(kind, config.merged(values, config.assignments(settings)))


def _kind_and_values(system_or_file: str) -> tuple[type[Retriever], dict[str, object]]:
    values: dict[str, object] = {"kind": system_or_file}
    if system_or_file.endswith(".toml"):
        values = config.read_toml(system_or_file)
    kind = values.pop("kind", None)
    if not isinstance(kind, str):
        raise UsageError(f"{system_or_file} does not name a system", 'add a line such as: kind = "bm25"')
    return system(kind), values


def labels(words: Sequence[str]) -> dict[str, str]:
    """Label -> source of each system.

    A source is a folder, a run, or a system such as `bm25` or `bm25:k1=0.9`. A word is a source, or `NAME=SOURCE`.
    Without NAME the label is the name of the folder or run, or the system as it was written.
    """
    sources: dict[str, str] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        named = bool(equals) and not any(mark in name for mark in ":/\\")
        source = rest if named else word
        label = name if named else _default_label(source)
        if label in sources:
            raise UsageError(f"two systems are called {label!r}", f"name one of them: other={source}")
        sources[label] = source
    return sources


def _default_label(source: str) -> str:
    if is_address(source):
        return source.rstrip("/").rpartition("/")[2]
    if is_run(source):
        return Path(source).stem
    return Path(source).name if os.path.isdir(source) else source


def is_run(source: str) -> bool:
    """Whether this is a file that is read as a run: neither the name of a system nor a TOML file with its options."""
    return os.path.isfile(source) and not source.endswith(".toml") and not is_kind(source)


def ready_runs(words: Sequence[str], dataset: Dataset, split: str, k: int) -> dict[str, Run]:
    """A run of each system on the questions of a split: runs as they are, and k hits of every other system."""
    named, problems = labels(words), Problems(dataset.skip_bad)
    runs: dict[str, Run] = {label: read_run(source, problems) for label, source in named.items() if is_run(source)}
    to_search = [word for word, label in zip(words, named, strict=True) if label not in runs]
    for label, retriever in ready_searchers(to_search, dataset).items():
        warn_of_other_documents(label, retriever, dataset, split)
        runs[label] = search_all(retriever, questions(dataset, split)[0], k, label)
    return {label: runs[label] for label in named}


def ready_systems(words: Sequence[str], dataset: Dataset, check: Check | None = None) -> dict[str, Retriever]:
    """Retrievers by their labels: saved ones are loaded, and systems are fitted here once all words are understood.

    `check` sees them before anything is fitted.
    """
    opened = {label: _opened(_local(source)) for label, source in labels(words).items()}
    if check:
        check({label: retriever for label, (retriever, _) in opened.items()})
    return {label: retriever.fit(dataset) if new else retriever for label, (retriever, new) in opened.items()}


def ready_searchers(words: Sequence[str], dataset: Dataset, check: Check | None = None) -> dict[str, Searcher]:
    """The same where a server is as good: it is named by its address, such as http://127.0.0.1:8000/NAME."""
    sources = labels(words)
    remote = {label: connect(source) for label, source in sources.items() if is_address(source)}
    local = [word for word, label in zip(words, sources, strict=True) if label not in remote]
    own = ready_systems(local, dataset, check)
    return {label: remote[label] if label in remote else own[label] for label in sources}


def _local(source: str) -> str:
    if is_address(source):
        raise UsageError(f"{source} is a server, and this command looks inside of systems", "name a saved folder")
    return source


def _opened(source: str) -> tuple[Retriever, bool]:
    """A new system, or a saved one, and whether it has yet to be fitted. `bm25` is a system, `./bm25` is a folder."""
    name, _, settings = source.partition(":")
    if os.path.isdir(source):  # not Path.is_dir, for which a name may be too long
        if not is_kind(name):
            return load(source), False
        _log.warning(
            "%s is read as the name of a system, which is fitted now; for the folder, write ./%s", source, source
        )
    if "/" in name and not name.endswith(".toml"):
        problem = f"{name} is no folder with a saved model"
        raise UsageError(problem, "check the path, or name a system such as bm25")
    known = config.options(_kind_and_values(name)[0])
    return new_system(name, split_settings(settings, known)), True


def split_settings(text: str, known: Container[str]) -> list[str]:
    """The `option=value` parts of a text: a comma begins one where the name of an option and = follow it.

    Any other comma belongs to the value, and so does all that stands in brackets.

    >>> split_settings("backbone=scratch:hidden=64,layers=1,training.steps=3", ("backbone", "training"))
    ['backbone=scratch:hidden=64,layers=1', 'training.steps=3']
    """
    parts: list[str] = []
    for piece in text.split(",") if text else ():
        if parts and not _begins_option(piece, parts[-1], known):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _begins_option(piece: str, before: str, known: Container[str]) -> bool:
    key, equals, _ = piece.partition("=")
    if not equals or _is_open(before):
        return False
    # A name that nobody knows is a slip that should be named, unless the value before has parts with names itself.
    return key.partition(".")[0].strip() in known or ":" not in before


def _is_open(text: str) -> bool:
    return sum(map(text.count, "[{")) > sum(map(text.count, "]}"))
