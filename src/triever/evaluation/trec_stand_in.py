"""What MTEB wants of trec_eval's Python package, computed by our own measures where that package has no build.

`RelevanceEvaluator` takes what `pytrec_eval.RelevanceEvaluator` takes and returns what it returns, for the families of
measures with cutoffs. `standing_in` offers it under that package's name, where the package is missing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ir_measures import AP, Measure, P, R, Success, nDCG

from triever.data.records import Qrels
from triever.errors import UsageError, nearest
from triever.evaluation.trec import TrecProvider

PACKAGE = "pytrec_eval"
FAMILIES = {"map_cut": AP, "ndcg_cut": nDCG, "recall": R, "P": P, "success": Success}


class RelevanceEvaluator:
    """Computes measures such as `ndcg_cut.10` for every query of a run."""

    def __init__(self, qrels: Qrels, measures: Iterable[str]) -> None:
        self._qrels = qrels
        self._measures: dict[Measure, str] = {}
        for word in measures:
            family, _, cutoffs = word.partition(".")
            if family not in FAMILIES or not cutoffs:
                problem = f"{word} is none of trec_eval's measures that are known here"
                raise UsageError(problem, nearest(family, FAMILIES))
            self._measures |= {FAMILIES[family] @ int(at): f"{family}_{at}" for at in cutoffs.split(",")}

    def evaluate(self, run: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """Every measure by its name in trec_eval, for the judged queries of a run."""
        judged = {query: self._qrels[query] for query in run if query in self._qrels}
        computed = {query: dict.fromkeys(self._measures.values(), 0.0) for query in judged}
        searched = {query: run[query] for query in judged}
        for metric in TrecProvider().iter_calc(list(self._measures), judged, searched) if judged else ():
            computed[metric.query_id][self._measures[metric.measure]] = float(metric.value)
        return computed


@contextlib.contextmanager
def standing_in() -> Generator[None]:
    """Whoever imports trec_eval's package inside of the block gets this evaluator, if the package is not installed.

    Only there: ir-measures looks for the same package, and would take it for the whole of it.
    """
    if PACKAGE in sys.modules or find_spec(PACKAGE):
        yield
        return
    module: Any = ModuleType(PACKAGE, "Triever's measures, where trec_eval has no build.")
    module.RelevanceEvaluator = RelevanceEvaluator
    sys.modules[PACKAGE] = module
    try:
        yield
    finally:
        del sys.modules[PACKAGE]
