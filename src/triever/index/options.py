"""How an index of one vector for each document is built and searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from triever import config
from triever.config import option
from triever.errors import UsageError
from triever.index.checks import at_least


@dataclass(frozen=True)
class IndexOptions:
    """How vectors are kept and searched: `IndexOptions(kind="hnsw", ef_search=256)`."""

    kind: Literal["flat", "hnsw", "ivfpq"] = option("flat", "flat (exact), hnsw (a graph) or ivfpq (short codes)")
    dtype: Literal["float32", "float16"] = option("float32", "how vectors are stored: float32 or float16")
    device: str = option("cpu", "where exact comparisons run: cpu, cuda, or auto: cuda where there is one")
    hnsw_m: int = option(32, "hnsw: neighbours of each vector")
    ef_construction: int = option(200, "hnsw: candidates examined to insert a vector")
    ef_search: int = option(128, "hnsw: candidates examined for a query; never fewer than k")
    nlist: int = option(0, "ivfpq: number of lists; 0: about four times the square root of the number of vectors")
    nprobe: int = option(0, "ivfpq: lists searched for a query; 0: 1/32 of all, at least 8")
    pq_m: int = option(0, "ivfpq: codes of each vector, a divisor of its dimensions; 0: about a quarter of them")
    nbits: int = option(8, "ivfpq: bits of each code, 4 to 8")
    rescore: int = option(200, "ivfpq: candidates scored again with the stored vectors; 0: none")

    def __post_init__(self) -> None:
        config.validate(self)
        at_least("hnsw_m", self.hnsw_m, 2)
        for name in ("ef_construction", "ef_search"):
            at_least(name, getattr(self, name), 1)
        for name in ("nlist", "nprobe", "pq_m", "rescore"):
            at_least(name, getattr(self, name), 0)
        if not 4 <= self.nbits <= 8:
            raise UsageError(f"nbits = {self.nbits} should be between 4 and 8", "the usual value is 8")
