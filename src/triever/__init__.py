"""Triever finds documents by generating their identifiers."""

import importlib as _importlib
import typing as _typing

from triever.data.cutting import Cut
from triever.data.datasets import Dataset, load_dataset
from triever.data.records import Answer, Document, Hit, Query, Result, Source
from triever.errors import (
    ArtifactError,
    BadRecord,
    Busy,
    DataError,
    MissingExtra,
    ServerError,
    TrieverError,
    UsageError,
)
from triever.evaluation.compare import compare
from triever.evaluation.report import Report, evaluate
from triever.remote import Remote, connect
from triever.retriever import Explanation, Retriever, edit, load
from triever.retrievers.bm25 import BM25
from triever.sharing.archive import pack, unpack
from triever.sharing.hub import pull, push
from triever.version import __version__

if _typing.TYPE_CHECKING:
    from triever.docids.schemes import Atomic, Cluster, Codebook, GivenDocids, Naive, Semantic, Title
    from triever.engines.docid_search import SearchOptions
    from triever.engines.docid_tree import DocidBranch, DocidNode
    from triever.engines.match_scores import MatchOptions
    from triever.engines.titles import SpellingOptions
    from triever.index.options import IndexOptions
    from triever.index.token_vectors import TokenOptions
    from triever.index.vector_files import VectorFile
    from triever.models.adapters import AdapterOptions
    from triever.models.decoders import DecoderOptions
    from triever.models.reatt import ReAttShape
    from triever.queries.query_writer import QueryWriter
    from triever.queries.writer_tuning import WriterTuning
    from triever.retrievers.answerer import Answerer, ReaderTuning
    from triever.retrievers.contextual import Contextual, ContrastTuning, VocabularyOptions
    from triever.retrievers.dense import Dense
    from triever.retrievers.fusion import Fused
    from triever.retrievers.gdr import GDR, LossWeights
    from triever.retrievers.generative import Generative
    from triever.retrievers.given import GivenVectors
    from triever.retrievers.multivector import MultiVector
    from triever.retrievers.reatt import ReAtt, ReAttTuning
    from triever.retrievers.recorded import GivenRun
    from triever.retrievers.reranker import Reranked
    from triever.training.clusters import ClusterNegatives
    from triever.training.pairs import Negatives
    from triever.training.tuning import DocidTuning, RerankTuning, Tuning
    from triever.training.views import ViewOptions

_LATER = {
    "AdapterOptions": "models.adapters",
    "Answerer": "retrievers.answerer",
    "Atomic": "docids.schemes",
    "Cluster": "docids.schemes",
    "ClusterNegatives": "training.clusters",
    "Codebook": "docids.schemes",
    "Contextual": "retrievers.contextual",
    "ContrastTuning": "retrievers.contextual",
    "DecoderOptions": "models.decoders",
    "Dense": "retrievers.dense",
    "DocidBranch": "engines.docid_tree",
    "DocidNode": "engines.docid_tree",
    "DocidTuning": "training.tuning",
    "Fused": "retrievers.fusion",
    "GDR": "retrievers.gdr",
    "Generative": "retrievers.generative",
    "GivenDocids": "docids.schemes",
    "GivenRun": "retrievers.recorded",
    "GivenVectors": "retrievers.given",
    "IndexOptions": "index.options",
    "LossWeights": "retrievers.gdr",
    "MatchOptions": "engines.match_scores",
    "MultiVector": "retrievers.multivector",
    "Naive": "docids.schemes",
    "Negatives": "training.pairs",
    "QueryWriter": "queries.query_writer",
    "ReaderTuning": "retrievers.answerer",
    "ReAtt": "retrievers.reatt",
    "ReAttShape": "models.reatt",
    "ReAttTuning": "retrievers.reatt",
    "Reranked": "retrievers.reranker",
    "RerankTuning": "training.tuning",
    "SearchOptions": "engines.docid_search",
    "Semantic": "docids.schemes",
    "SpellingOptions": "engines.titles",
    "Title": "docids.schemes",
    "TokenOptions": "index.token_vectors",
    "Tuning": "training.tuning",
    "VectorFile": "index.vector_files",
    "ViewOptions": "training.views",
    "VocabularyOptions": "retrievers.contextual",
    "WriterTuning": "queries.writer_tuning",
}
"""What needs PyTorch is imported when it is first asked for: BM25 does not wait for it."""


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'triever' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"triever.{_LATER[name]}"), name)


__all__ = [
    "__version__",
    "AdapterOptions",
    "Answer",
    "Answerer",
    "ArtifactError",
    "Atomic",
    "BadRecord",
    "BM25",
    "Busy",
    "Cluster",
    "ClusterNegatives",
    "Codebook",
    "compare",
    "connect",
    "Contextual",
    "ContrastTuning",
    "Cut",
    "DataError",
    "Dataset",
    "DecoderOptions",
    "Dense",
    "DocidBranch",
    "DocidNode",
    "DocidTuning",
    "Document",
    "edit",
    "evaluate",
    "Explanation",
    "Fused",
    "GDR",
    "Generative",
    "GivenDocids",
    "GivenRun",
    "GivenVectors",
    "Hit",
    "IndexOptions",
    "load",
    "load_dataset",
    "LossWeights",
    "MatchOptions",
    "MissingExtra",
    "MultiVector",
    "Naive",
    "Negatives",
    "pack",
    "pull",
    "push",
    "Query",
    "QueryWriter",
    "ReaderTuning",
    "ReAtt",
    "ReAttShape",
    "ReAttTuning",
    "Remote",
    "Report",
    "Reranked",
    "RerankTuning",
    "Result",
    "Retriever",
    "SearchOptions",
    "Semantic",
    "ServerError",
    "Source",
    "SpellingOptions",
    "Title",
    "TokenOptions",
    "TrieverError",
    "Tuning",
    "unpack",
    "UsageError",
    "VectorFile",
    "ViewOptions",
    "VocabularyOptions",
    "WriterTuning",
]
