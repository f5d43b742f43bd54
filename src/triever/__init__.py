"""Triever finds documents by generating their identifiers."""

from triever.data.datasets import Dataset, load_dataset
from triever.data.records import Document, Hit, Query, Result
from triever.errors import (
    ArtifactError,
    BadRecord,
    Busy,
    DataError,
    MissingExtra,
    TrieverError,
    UsageError,
)
from triever.evaluation.compare import compare
from triever.evaluation.report import Report, evaluate
from triever.retrievers.base import Explanation, Retriever, edit, load
from triever.retrievers.bm25 import BM25
from triever.version import __version__

__all__ = [
    "__version__",
    "ArtifactError",
    "BadRecord",
    "BM25",
    "Busy",
    "compare",
    "DataError",
    "Dataset",
    "Document",
    "edit",
    "evaluate",
    "Explanation",
    "Hit",
    "load",
    "load_dataset",
    "MissingExtra",
    "Query",
    "Report",
    "Result",
    "Retriever",
    "TrieverError",
    "UsageError",
]
