"""What fitting and searching a system would cost: computed from measured figures, by a few rules.

- Reading takes time in proportion to tokens; on a processor, also to one over its cores.
- A training on a GPU has a fixed number of steps, and so a fixed time. On a processor it is mostly the reading of
  questions, and takes time in proportion to them; never less than was measured.
- Between and beyond two measured sizes of a corpus, the time of a query lies on a straight line. Where only one size
  was measured, it grows in proportion to the documents above that, which is more than it will be.
- The memory of an index grows in proportion to documents, words or tokens. Documents with their ids take what an
  artifact holds of them. Python and its libraries are not counted.

Every cost is an estimate, and names the files of its figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from triever.data.store import LOOKUP
from triever.lab import measured
from triever.lab.measured import PYTHON, SPEEDS, SQUAD, WIKI, Figure, Speed
from triever.lab.situation import Corpus, Situation

PASSES = 2
"""How often a text is read where passages have rows: as a whole, and in pieces."""


@dataclass(frozen=True)
class Cost:
    """Seconds to fit, bytes while it searches, milliseconds for a query among many; and where figures come from."""

    fit_seconds: float
    memory_bytes: int
    query_ms: float
    is_limit: bool  # whether a query takes at most so long: no larger corpus was measured
    sources: tuple[str, ...]


def bm25_cost(situation: Situation) -> Cost:
    """BM25, which reads words and no tokens."""
    corpus = situation.corpus
    words = corpus.documents * corpus.words
    seconds = words * measured.BM25_FIT.value / WIKI.words
    index = words * measured.BM25_BYTES.value * SQUAD.documents / SQUAD.words
    return _cost(situation, "bm25", seconds, index, measured.BM25_FIT, measured.BM25_BYTES)


def dense_cost(situation: Situation) -> Cost:
    """Dense retrieval as it comes."""
    index = situation.corpus.rows * measured.DENSE_BYTES.value + measured.WEIGHTS.value
    return _cost(situation, "dense", reading(situation), index, _reading_figure(situation), measured.DENSE_BYTES)


def late_cost(situation: Situation, *, tuned: bool) -> Cost:
    """Late interaction as it comes, or tuned as on squad-partial."""
    corpus, gpu = situation.corpus, bool(situation.machine.gpu)
    seconds, figures = reading(situation), [_reading_figure(situation), measured.LATE_BYTES]
    if gpu:
        rate = WIKI.tokens_of_256 / (measured.LATE_GPU.value - measured.LATE_GPU_TRAINING.value)
        seconds, figures[0] = corpus.documents * corpus.tokens / rate, measured.LATE_GPU
    if tuned:
        seconds += measured.LATE_TUNED.value
        figures.append(measured.LATE_TUNED)
    index = late_bytes(situation) + measured.WEIGHTS.value
    return _cost(situation, "multivector", seconds, index, *figures)


def late_bytes(situation: Situation) -> float:
    """The bytes of the token vectors of late interaction."""
    of_token = measured.LATE_BYTES.value * SQUAD.documents / SQUAD.tokens_of_256
    return situation.corpus.documents * situation.corpus.tokens * of_token


def generative_cost(situation: Situation, docids: str, *, passages: bool, teacher: Cost | None = None) -> Cost:
    """Generative retrieval with a row for every node; on a processor its encoder stays as it comes."""
    corpus, gpu = situation.corpus, bool(situation.machine.gpu)
    taught = measured.TAUGHT_GPU if gpu else measured.TAUGHT_CPU
    seconds = reading(situation) * (PASSES if passages else 1) + taught.value * (1 if gpu else _more_questions(corpus))
    figures = [_reading_figure(situation), taught]
    if docids == "semantic":
        clustered = measured.SEMANTIC_GPU if gpu else measured.SEMANTIC_CPU
        seconds += corpus.rows * _clustering(gpu)
        figures.append(clustered)
    if teacher:
        seconds += teacher.fit_seconds + corpus.questions * teacher.query_ms / 1000
    rows = measured.ROW_BYTES[docids, passages]
    index = corpus.rows * rows.value / (WIKI if passages else PYTHON).documents + 2 * measured.WEIGHTS.value
    cost = _cost(situation, docids, seconds, index, *figures, rows)
    return cost if teacher is None else _with_sources(cost, teacher)


def _with_sources(cost: Cost, other: Cost) -> Cost:
    sources = tuple(dict.fromkeys((*cost.sources, *other.sources)))
    return Cost(cost.fit_seconds, cost.memory_bytes, cost.query_ms, cost.is_limit, sources)


def _more_questions(corpus: Corpus) -> float:
    """How many times more questions than were measured; 1 for fewer."""
    return max(1.0, corpus.questions / measured.TAUGHT_CPU_QUESTIONS.value)


def _clustering(gpu: bool) -> float:
    """Seconds for a document that docids of several symbols take more than atomic ones."""
    if gpu:
        return (measured.SEMANTIC_GPU.value - measured.ATOMIC_GPU.value) / WIKI.documents
    return (measured.SEMANTIC_CPU.value - measured.ATOMIC_CPU.value) / PYTHON.documents


def reading(situation: Situation) -> float:
    """Seconds in which an encoder reads all documents."""
    return situation.corpus.documents * situation.corpus.tokens / tokens_per_second(situation)


def tokens_per_second(situation: Situation) -> float:
    """How fast MiniLM reads on this machine: as an H200 does, or as so many ARM cores do."""
    if situation.machine.gpu:
        return WIKI.tokens_of_256 / (measured.READ_GPU.value - measured.READ_GPU_TRAINING.value)
    return PYTHON.tokens_of_64 / measured.READ_CPU.value * situation.machine.cores / measured.CORES


def _reading_figure(situation: Situation) -> Figure:
    return measured.READ_GPU if situation.machine.gpu else measured.READ_CPU


def _cost(situation: Situation, system: str, seconds: float, index: float, *figures: Figure) -> Cost:
    """A cost with the documents' own memory and the time of a query added."""
    corpus = situation.corpus
    speeds = SPEEDS.get((system, bool(situation.machine.gpu))) or SPEEDS[system, False]
    used = [*figures, *(speed.per_second for speed in speeds)]
    return Cost(
        seconds,
        round(index + corpus.text_bytes + corpus.documents * LOOKUP),
        query_ms(speeds, corpus.documents),
        len(speeds) == 1 and speeds[0].index is None and corpus.documents > speeds[0].documents,
        tuple(dict.fromkeys(figure.file for figure in used)),
    )


def query_ms(speeds: tuple[Speed, ...], documents: int) -> float:
    """Milliseconds for a query among many, over so many documents; never less than was measured on the fewest."""
    first, last = speeds[0], speeds[-1]
    begun = 1000 / first.per_second.value
    more = max(0, documents - first.documents)
    if last is not first:
        each = (1000 / last.per_second.value - begun) / (last.documents - first.documents)
    else:
        growing = 1000 / first.index.value if first.index else begun
        each = growing / first.documents
    return begun + more * max(0.0, each)
