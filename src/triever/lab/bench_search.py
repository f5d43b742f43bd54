"""Speed, size and quality of saved retrievers in one table: what a faster or smaller index costs.

Nothing is trained, and no document is encoded again. What varies depends on the retriever:

    dense         the kind of index
    multivector   the number of bits
    reatt         the number of bits, and candidates by the nearest tokens instead of by clusters
    generative    exact search, and beams of several widths
    contextual    the ways to join the spellings of a title
    gdr           the number of clusters, and how much of a docid is written; `compared` is the share of all vectors
                  that a query is compared with

`agreement` is the share of the exact search's first ten that is found too, where the exact search is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from triever.data.datasets import Dataset
from triever.data.records import Qrels, Query, Result
from triever.engines.base import ReadsAhead
from triever.errors import UsageError
from triever.evaluation.compare import questions
from triever.evaluation.measures import per_query
from triever.progress import track
from triever.retriever import Retriever, load

KINDS = ("flat", "hnsw", "ivfpq")
BITS = (16, 4, 2)
WIDTHS = (10, 40, 100)
PATHS = (1, 5, 20)
NEAREST = 2048
"""Nearest tokens of each query token, as in the paper on retrieval as attention."""
EVERYTHING = 10**9
"""How many prefixes an exact search may open: all of them, so that its hits are certain."""
Row: TypeAlias = dict[str, str | float]


def bench_search(
    models: Mapping[str, Path | Retriever], dataset: Dataset, split: str, limit: int = 1000, only: Sequence[str] = ()
) -> list[Row]:
    """A row for each system and each way to search it, over the first `limit` queries of a split.

    With `only`, a row is measured if one of these texts is in its name.
    """
    queries, qrels = questions(dataset, split)
    queries, rows = queries[:limit], []
    for name, model in models.items():
        retriever = model if isinstance(model, Retriever) else load(model)
        if not len(retriever):
            raise UsageError(f"{name} holds no documents", "add documents, or leave this model out")
        exact: list[Result] | None = None
        every = variants(name, retriever)
        first = next(iter(every))
        wanted = [label for label in every if not only or any(text in label for text in only)]
        if not wanted:
            problem = f"no way to search {name} has {' or '.join(map(repr, only))} in its name"
            raise UsageError(problem, f"there are: {'; '.join(every)}")
        for label in track(wanted, f"measuring {name}", unit="ways to search"):
            row, results = _row(label, every[label](), queries, qrels)
            exact = results if label == first else exact
            rows.append(row | {"agreement": "" if exact is None else round(_agreement(exact, results), 4)})
    return rows


def variants(name: str, retriever: Retriever) -> dict[str, Callable[[], Retriever]]:
    """Name -> a function that makes the retriever with this way to search, the exact one first; few are ever called."""
    from triever.engines.nodes import NodeEngine
    from triever.retrievers.contextual import Contextual
    from triever.retrievers.dense import Dense
    from triever.retrievers.gdr import GDR
    from triever.retrievers.generative import Generative
    from triever.retrievers.multivector import MultiVector
    from triever.retrievers.reatt import ReAtt

    made: dict[str, Callable[[], Retriever]]
    if isinstance(retriever, Contextual) and retriever.vocabulary.k:
        joined = {f"sum of {paths}": {"join": "sum", "paths": paths} for paths in PATHS}
        joined |= {"best path": {"join": "max"}, "regenerated": {"join": "regenerate"}}
        ways: dict[str, dict[str, object]] = {
            "exact": {"spelling": {"join": "sum"}, "search_options": {"method": "exact"}}
        }
        ways |= {label: {"spelling": how, "search_options": {"method": "beam"}} for label, how in joined.items()}
        made = {label: partial(retriever.searched_with, how) for label, how in ways.items()}
    elif isinstance(retriever, GDR):
        engine = retriever.engine
        own = engine.search_options if isinstance(engine, NodeEngine) else retriever.search_options
        widths = sorted({*WIDTHS, own.beam_width})
        clusters = {f"{width} clusters": partial(retriever.searching, width=width) for width in widths}
        depths = {
            f"depth {depth}": partial(retriever.searched_with, {"matching": {"depth": depth}})
            for depth in retriever.depths
        }
        everything = {"all clusters": partial(retriever.searching, width=len(retriever))}
        by_nodes = isinstance(retriever.engine, NodeEngine)
        made = {**depths, **clusters} if by_nodes else {**everything, **clusters, **depths}
    elif isinstance(retriever, Generative):
        made = {"exact": partial(retriever.searching, method="exact", budget=EVERYTHING)}
        made |= {f"beam {width}": partial(retriever.searching, method="beam", width=width) for width in WIDTHS}
        if not isinstance(retriever.engine, NodeEngine):  # whose symbols have no scores
            made |= {"free 10": partial(retriever.searching, method="free", width=10)}
    elif isinstance(retriever, Dense):
        made = {kind: partial(retriever.reindexed, kind=kind) for kind in KINDS}
    elif isinstance(retriever, MultiVector | ReAtt):
        reindexed = partial(retriever.reindexed, candidates=None, tokens=0)
        made = {"all compared": partial(reindexed, bits=16, candidates=0)}
        if isinstance(retriever, ReAtt):
            made |= {f"{NEAREST} nearest tokens": partial(reindexed, bits=16, tokens=NEAREST)}
        made |= {f"{bits} bits": partial(reindexed, bits=bits) for bits in BITS}
    else:
        return {name: lambda: retriever}
    return {f"{name}, {label}": make for label, make in made.items()}


def _row(label: str, retriever: Retriever, queries: Sequence[Query], qrels: Qrels) -> tuple[Row, list[Result]]:
    retriever.search_many(queries[:8], 10)  # not counted: the first call prepares things
    started = time.perf_counter()
    results = retriever.search_many(queries, 10)
    together = time.perf_counter() - started
    alone = []
    for query in queries[:20]:
        started = time.perf_counter()
        retriever.search(query, 10)
        alone.append(time.perf_counter() - started)
    row: Row = {"system": label, "queries_per_second": round(len(queries) / together, 1)}
    row |= {"ms_for_one": round(1000 * float(np.median(alone)), 2)}
    row |= {"index_queries_per_second": _index_rate(retriever, queries)}
    row |= {"bytes_per_document": round(retriever.index_bytes / len(retriever), 1)}
    compared = retriever.compared([query.text for query in queries])
    row |= {"compared": "" if compared is None else round(compared, 4)}
    return row | success(queries, results, qrels, (1, 10)), results


def success(
    queries: Sequence[Query], results: Sequence[Result], qrels: Qrels, depths: Sequence[int]
) -> dict[str, float]:
    """The share of these queries that have a relevant document among their first hits, at several depths."""
    asked = {query.id: qrels[query.id] for query in queries}
    values = per_query(dict(zip(asked, results, strict=True)), asked, [f"Success@{depth}" for depth in depths])
    return {measure: round(float(np.mean([*value.values()])), 4) for measure, value in values.items()}


def _index_rate(retriever: Retriever, queries: Sequence[Query]) -> float | str:
    """Queries a second of the index alone, once they are encoded; "" for a retriever without an encoder."""
    from triever.engines.answers import AnswererEngine

    engine = retriever.engine
    engine = engine.first if isinstance(engine, AnswererEngine) else engine
    if not isinstance(engine, ReadsAhead):
        return ""
    search = engine.read_ahead([query.text for query in queries])
    started = time.perf_counter()
    search(10)
    return round(len(queries) / (time.perf_counter() - started), 1)


def _agreement(exact: Sequence[Result], results: Sequence[Result]) -> float:
    pairs = [({hit.id for hit in best}, {hit.id for hit in hits}) for best, hits in zip(exact, results, strict=True)]
    return float(np.mean([len(best & ids) / max(len(best), 1) for best, ids in pairs]))
