"""What all tests of GDR use: small models, one scheme of each kind, and documents with many queries."""

from __future__ import annotations

import triever
from tests.retrievers.contract import DOCUMENTS
from triever.docids.schemes import Atomic, Cluster, Codebook, Scheme, Semantic, Title
from triever.engines.clusters import ClusterEngine
from triever.engines.docid_search import SearchOptions
from triever.retrievers.gdr import GDR
from triever.training.tuning import DocidTuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=600"
NOTHING = DocidTuning(steps=0)
HELD = DocidTuning(steps=0, holdout=0.5)
ALL = SearchOptions(width=200)
RULES = ("sum", "loglinear")
SCHEMES: dict[str, Scheme] = {
    "cluster": Cluster(clusters=4, branch=4),
    "centroids": Cluster(clusters=4),
    "several": Cluster(clusters=4, branch=4, margin=0.5),
    "semantic": Semantic(branch=3, leaf=3),
    "codebook": Codebook(levels=2, bits=2),
    "atomic": Atomic(),
    "title": Title(vocabulary=100),
}


def questions() -> triever.Dataset:
    """The same documents with many queries: words of their texts, from three places."""
    asked = [
        (document.id, words[at : at + 3])
        for document in DOCUMENTS
        for words in [document.text.split()]
        for at in (0, 2, 4)
    ]
    queries = [triever.Query(f"q{number}", " ".join(words)) for number, (_, words) in enumerate(asked) if words]
    qrels = {f"q{number}": {name: 1} for number, (name, words) in enumerate(asked) if words}
    return triever.Dataset.of("questions", DOCUMENTS, queries, {"train": qrels, "test": qrels})


def gdr(scheme: str = "cluster", **options: object) -> GDR:
    return GDR(docids=SCHEMES[scheme], **{"backbone": SMALL, "training": NOTHING} | options)  # ty: ignore[invalid-argument-type]


def engine_of(retriever: triever.Retriever) -> ClusterEngine:
    return retriever.engine
