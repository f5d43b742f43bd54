"""Docid schemes: ways to give every document a sequence of symbols, and a new one without starting over.

A scheme is a dataclass of options. `fit` gives docids to documents, `place` to one more; each scheme owns
its vocabulary, `width` symbols of it. No docid of a scheme is the beginning of another. Vectors come in
as tensors: nothing here knows a model.
"""

from triever.docids.schemes.atomic import Atomic
from triever.docids.schemes.base import SCHEMES, Docid, Numbering, Scheme, scheme_class
from triever.docids.schemes.cluster import Cluster
from triever.docids.schemes.codebook import Codebook
from triever.docids.schemes.given import GivenDocids
from triever.docids.schemes.naive import Naive
from triever.docids.schemes.pieces import UNKNOWN, learn_pieces, load_pieces
from triever.docids.schemes.semantic import Semantic
from triever.docids.schemes.title import Pieces, Title

SCHEMES |= {scheme.kind: scheme for scheme in (Atomic, Cluster, Codebook, GivenDocids, Naive, Semantic, Title)}

__all__ = [
    "Atomic",
    "Cluster",
    "Codebook",
    "Docid",
    "GivenDocids",
    "learn_pieces",
    "load_pieces",
    "Naive",
    "Numbering",
    "Pieces",
    "Scheme",
    "scheme_class",
    "SCHEMES",
    "Semantic",
    "Title",
    "UNKNOWN",
]
