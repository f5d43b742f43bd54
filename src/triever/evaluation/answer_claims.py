"""What a model claims of its answers: each has a probability, and is right where it is exactly one of the known ones.

To `temperature` an answer is one of two things that may be true: that answer, or anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triever.data.answers import exact_match
from triever.data.records import Qrels, Query
from triever.errors import UsageError
from triever.evaluation.abstaining import Point
from triever.evaluation.measures import check_questions
from triever.evaluation.temperature import Distributions
from triever.learning.answering import AnsweringRetriever
from triever.printable import an

SMALLEST = 1e-300
"""A probability that still has a logarithm."""


@dataclass(frozen=True)
class AnswerClaims:
    """What is claimed of the answers that were written, whether each is exactly right, and whether it is given."""

    distributions: Distributions
    right: np.ndarray  # (answers,) 1 or 0
    given: np.ndarray  # (answers,) bool

    def own_point(self, threshold: float) -> Point:
        """What a model does that gives answers from this probability on."""
        # What is given is not found out anew: claims come from logarithms, and may be a last digit off.
        wrong = 1.0 - self.right[self.given]
        return Point(threshold, float(self.given.mean()), float(wrong.mean()) if len(wrong) else 0.0)


def answer_claims(retriever: AnsweringRetriever, queries: Sequence[Query], qrels: Qrels) -> AnswerClaims:
    """The claims of a model about some questions; those for which it has written nothing are left out."""
    check_questions(["EM"], queries, qrels)
    asked = [query for query in queries if query.text.strip()]
    rows = [
        (answer.probability, exact_match(answer.written, query.answers), answer.text is not None)
        for answer, query in zip(retriever.ask_many(asked, matches=False), asked, strict=True)
        if answer.written
    ]
    if not rows:
        problem = f"{an(retriever.kind)} retriever has written no answer to any of {len(queries):,} questions"
        raise UsageError(problem, "take a model that has learned to answer, or other questions")
    claimed, right, given = np.array(rows, np.float64).T
    distributions = Distributions(np.log(claimed.clip(SMALLEST, 1))[:, None], np.ones(len(claimed)))
    return AnswerClaims(distributions, right, given.astype(bool))
