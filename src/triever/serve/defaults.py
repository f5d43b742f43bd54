"""What is served where nothing is named: BM25 on the default corpus at once, and what the quickstart has saved."""

from __future__ import annotations

from pathlib import Path

from triever.artifact import is_artifact
from triever.data.cache import cache_folder
from triever.data.datasets import load_dataset
from triever.retriever import Retriever, load
from triever.retrievers.bm25 import BM25
from triever.serve.served import Source
from triever.version import __version__


def default_sources() -> dict[str, Source]:
    """The sources by name. Their folders are a cache: what is changed here stays in memory."""
    learned = {name: Source(None, lambda path=path: load(path)) for name, path in saved_folders().items()}
    return {"bm25": Source(None, _bm25), **learned}


def saved_folders() -> dict[str, Path]:
    """The newest folder of each system that this version's quickstart has saved."""
    folders = [path for path in cache_folder().glob(f"quickstart-{__version__}-*-*") if is_artifact(path)]
    folders.sort(key=lambda path: path.stat().st_mtime)
    return dict(sorted((path.name.split("-")[2], path) for path in folders))


def _bm25() -> Retriever:
    return BM25().fit(load_dataset("python"))
