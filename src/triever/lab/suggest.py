"""Which system to use for a corpus on a machine, why, what it costs, and the commands that do it.

The rules are those of docs/suggest.md, which has them as a table; numbers come from `triever.lab.measured`. Nothing is
read or printed here.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from triever.data.words import how_texts_look
from triever.lab import measured
from triever.lab.costs import Cost, bm25_cost, dense_cost, generative_cost, late_cost
from triever.lab.measured import Figure
from triever.lab.situation import Situation
from triever.memory_parts import readable
from triever.printable import duration

FEW = 100
"""Fewer training questions teach nothing: of these a twentieth, five, would choose the best round."""
MANY = 10_000
"""From so many questions on, late interaction is worth fitting as a teacher."""
LARGE = 100_000
"""With more documents, docids have several symbols: a search then reads a few percent of the rows."""
SHORT = 40
"""Words of a text on average below which passages have no rows: it is hardly more than one."""
NIGHT = 12 * 3600
"""Seconds that a fit may take before another system is named first."""
OTHERS = 2
"""How many systems are named besides the first."""
MEASURED = 60_000
"""Documents of the largest corpus that was measured."""

Words: TypeAlias = tuple[str, ...]
"""The words of a command line."""

TUNED = (
    *("training.steps=300", "training.batch=128", "training.rounds=4", "training.learning_rate=1e-4"),
    *("training.temperature=0.02", "negatives.count=1"),
)
"""How late interaction was tuned on squad-partial."""


@dataclass(frozen=True)
class Suggestion:
    """A system, the reasons for it, its cost, and the commands that fit, search and change it."""

    system: str
    why: tuple[str, ...]
    cost: Cost
    fit: tuple[Words, ...]
    use: tuple[Words, ...]
    named: str  # what a comparison calls it: its folder, or the system itself where that is fitted in seconds


@dataclass(frozen=True)
class Advice:
    """Suggestions, the best first; how to compare them; and what to know about the figures."""

    situation: Situation
    suggestions: tuple[Suggestion, ...]
    compare: Words  # empty if there are no questions to compare on
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON; commands are lines for a shell."""
        table = dataclasses.asdict(self)
        for suggestion, row in zip(self.suggestions, table["suggestions"], strict=True):
            row["fit"], row["use"] = _shown(suggestion.fit), _shown(suggestion.use)
        return table | {"compare": shlex.join(self.compare)}


def suggest(situation: Situation, *, expansions: str = "", read_as: str = "", skip_bad: bool = False) -> Advice:
    """The advice for a situation; commands name the file of written questions and how the data is read, if given."""
    maker = _Maker(situation, expansions, read_as, skip_bad)
    candidates = maker.candidates()
    fitting = [suggestion for suggestion in candidates if _has_room(situation, suggestion)]
    chosen = sorted(fitting, key=_is_slow)[: 1 + OTHERS]
    notes = [*_left_out(situation, candidates), *_notes(situation)]
    return Advice(situation, tuple(chosen), maker.comparison(chosen), tuple(notes))


def _has_room(situation: Situation, suggestion: Suggestion) -> bool:
    """Whether memory is enough; BM25 and dense retrieval may leave their index on the disk."""
    return suggestion.system in ("bm25", "dense") or suggestion.cost.memory_bytes <= situation.machine.memory


def _is_slow(suggestion: Suggestion) -> bool:
    return suggestion.cost.fit_seconds > NIGHT


def _left_out(situation: Situation, candidates: Iterable[Suggestion]) -> Iterable[str]:
    """What would have been named, or named first, with more memory or time."""
    for suggestion in candidates:
        if not _has_room(situation, suggestion):
            needed, free = readable(suggestion.cost.memory_bytes), readable(situation.machine.memory)
            yield f"{suggestion.system} is left out, because it needs {needed} of memory and {free} are free"
        elif _is_slow(suggestion):
            yield f"{suggestion.system} comes last, because its fit takes {duration(suggestion.cost.fit_seconds)}"


@dataclass(frozen=True)
class _Maker:
    """Makes suggestions with their commands."""

    situation: Situation
    expansions: str
    read_as: str
    skip_bad: bool

    def candidates(self) -> list[Suggestion]:
        """What suits the situation, the best first, whether or not there is room and time for it."""
        suited = self._suited()
        if self.situation.corpus.language == "english":
            return suited
        return sorted(suited, key=lambda suggestion: suggestion.system != "bm25")

    def _suited(self) -> list[Suggestion]:
        """The same for texts in English."""
        corpus, gpu = self.situation.corpus, bool(self.situation.machine.gpu)
        if self.situation.changes == "hourly":
            return [self.dense(), self.bm25()]
        if corpus.questions >= FEW:
            return [self.generative(), *([self.late(tuned=True)] if gpu else []), self.dense(), self.bm25()]
        if corpus.written and self.expansions:
            return [self.bm25(), self.generative(), self.dense()]
        return [*([self.late(tuned=False)] if gpu else []), self.dense(), self.bm25()]

    def bm25(self) -> Suggestion:
        """BM25, with written questions where there are any."""
        why = ["it needs neither training nor a GPU; after changes its scores are exactly those of a new fit"]
        written = bool(self.expansions and self.situation.corpus.written)
        if written:
            figures = measured.SQUAD_WRITTEN, measured.SQUAD_BM25
            why.append(_beside("with written questions", "squad-partial", *figures, "without"))
        language = self.situation.corpus.language
        settings = [f"language={language}"] if language not in ("english", "") else []
        fit = [self._fit("bm25", "models/bm25", settings, expanded=True)]
        named = "models/bm25" if written or settings else "bm25"
        return self._made("bm25", why, bm25_cost(self.situation), fit, named)

    def dense(self) -> Suggestion:
        """Dense retrieval as it comes."""
        why = ["an encoder reads every document once and nothing is trained; a new document is read by itself"]
        why.append(_lexical_or_dense())
        return self._made("dense", why, dense_cost(self.situation), [self._fit("dense", "models/dense")])

    def late(self, *, tuned: bool) -> Suggestion:
        """Late interaction, as it comes or tuned."""
        if tuned:
            figures = measured.SQUAD_LATE_TUNED, measured.SQUAD_DENSE_TUNED
            why = [_beside("tuned", "squad-partial", *figures, "with tuned dense retrieval")]
        else:
            figures = measured.SQUAD_LATE, measured.SQUAD_DENSE
            why = [_beside("as it comes", "squad-partial", *figures, "with dense retrieval")]
            why[0] += f"; on wiki60k's of NQ {_share(measured.WIKI_LATE)} and {_share(measured.WIKI_DENSE)}"
        why.append("there is room for a vector of every token, which is what it needs most of")
        return self._made("multivector", why, late_cost(self.situation, tuned=tuned), [self._late_fit(tuned)])

    def generative(self) -> Suggestion:
        """Generative retrieval, with the docids, passages and teacher that suit the corpus."""
        corpus, gpu = self.situation.corpus, bool(self.situation.machine.gpu)
        docids = "semantic" if corpus.documents > LARGE else "atomic"
        passages = corpus.words >= SHORT and self._has_room(docids)
        settings = [f"docids={docids}"] if docids == "semantic" else []
        settings += [] if passages else ["passages=0"]
        settings += [] if gpu else ["training.encoder_steps=0"]
        teacher = late_cost(self.situation, tuned=True) if self._is_taught() else None
        settings += ["teacher=models/multivector"] if teacher else []
        fits = [self._late_fit(tuned=True)] if teacher else []
        fits.append(self._fit("generative", "models/generative", [*self._split(), *settings], expanded=True))
        cost = generative_cost(self.situation, docids, passages=passages, teacher=teacher)
        return self._made("generative", self._why_generative(docids, passages, bool(teacher)), cost, fits)

    def _why_generative(self, docids: str, passages: bool, taught: bool) -> list[str]:
        corpus, gpu = self.situation.corpus, self.situation.machine.gpu
        why = [self._why_it_learns()]
        if docids == "semantic":
            why.append(f"docids=semantic, because {corpus.documents:,} documents are more than {LARGE:,}")
        if not passages:
            reason = f"texts have {corpus.words:.0f} words" if corpus.words < SHORT else "memory is short"
            why.append(f"passages=0, because {reason}")
        if not gpu:
            why.append("training.encoder_steps=0, because an encoder is trained on a GPU")
        if taught:
            student, late = _share(measured.SQUAD_TAUGHT), _share(measured.SQUAD_LATE_TUNED)
            why.append(
                f"late interaction is its teacher: on squad-partial ({measured.TEACHER_QUESTIONS.value:,} questions "
                f"and written ones) the answer is first for {student} with a teacher, for {late} with the teacher "
                f"itself and for {_share(measured.SQUAD_DENSE_TUNED)} with tuned dense retrieval"
            )
        return why

    def _why_it_learns(self) -> str:
        if self.situation.corpus.questions < FEW:
            return "it learns from written questions; how well without any judged ones was not measured"
        if self.situation.machine.gpu:
            figures = measured.NQ_GENERATIVE, measured.NQ_DENSE
            sentence = _beside("with its defaults", "nq-gold", *figures, "with tuned dense retrieval")
        else:
            figures = measured.PYTHON_GENERATIVE, measured.PYTHON_DENSE
            beside = "with dense retrieval as it comes"
            sentence = _beside("as the quickstart trains it", "Python's documentation", *figures, beside)
        return f"it learns from {self.situation.corpus.questions:,} questions; {sentence}"

    def comparison(self, suggestions: Iterable[Suggestion]) -> Words:
        """The command that compares systems, if there are questions for it."""
        corpus = self.situation.corpus
        named = [suggestion.named for suggestion in suggestions]
        named += ["bm25"] if "bm25" not in named and "models/bm25" not in named else []
        data = self._data()
        return ("triever", "compare", *named, *data, "--split", corpus.test) if corpus.test else ()

    def _is_taught(self) -> bool:
        machine, corpus = self.situation.machine, self.situation.corpus
        room = late_cost(self.situation, tuned=True).memory_bytes <= machine.memory
        return bool(machine.gpu) and corpus.questions >= MANY and room

    def _has_room(self, docids: str) -> bool:
        return generative_cost(self.situation, docids, passages=True).memory_bytes <= self.situation.machine.memory

    def _split(self) -> list[str]:
        train = self.situation.corpus.train
        return [f"training.split={train}"] if train not in ("", "train") else []

    def _late_fit(self, tuned: bool) -> Words:
        return self._fit("multivector", "models/multivector", [*self._split(), *TUNED] if tuned else [])

    def _data(self) -> Words:
        read = [*(("--as", self.read_as) if self.read_as else ()), *(("--skip-bad",) if self.skip_bad else ())]
        return ("--data", self.situation.corpus.name, *read)

    def _fit(self, system: str, folder: str, settings: Iterable[str] = (), *, expanded: bool = False) -> Words:
        words = ["triever", "fit", system, *self._data(), "--out", folder]
        words += ["--expansions", self.expansions] if expanded and self.expansions else []
        return (*words, *(word for setting in settings for word in ("--set", setting)))

    def _made(self, system: str, why: Iterable[str], cost: Cost, fits: Iterable[Words], named: str = "") -> Suggestion:
        folder = f"models/{system}"
        install = () if system == "bm25" or self.situation.machine.has_weights else (INSTALL,)
        use = [("triever", "search", folder, "what you look for")]
        if self.situation.changes != "rarely":
            use.append(("triever", "add", folder, "new.jsonl", "--replace"))
        return Suggestion(system, tuple(why), cost, (*install, *fits), tuple(use), named or folder)


INSTALL = ("triever", "weights", "install", "minilm")


def _lexical_or_dense() -> str:
    return (
        "neither BM25 nor dense retrieval as it comes is better everywhere: the answer is first for "
        f"{_share(measured.WIKI_BM25)} and {_share(measured.WIKI_DENSE)} of wiki60k's questions of NQ, and for "
        f"{_share(measured.SQUAD_BM25)} and {_share(measured.SQUAD_DENSE)} of those of squad-partial"
    )


def _beside(how: str, data: str, figure: Figure, other: Figure, beside: str) -> str:
    """A sentence about a system, and another one beside it, on the questions of a dataset."""
    return (
        f"{how}, the answer is first for {_share(figure)} of the questions of {data}, and for {_share(other)} {beside}"
    )


def _share(figure: Figure) -> str:
    """A share as pages write it.

    >>> _share(Figure(0.4208, "", ()))
    '.421'
    """
    return f"{figure.value:.3f}".removeprefix("0")


def _notes(situation: Situation) -> Iterable[str]:
    """What to know about the data and the figures."""
    corpus, machine = situation.corpus, situation.machine
    if corpus.language != "english":
        yield (
            f"the texts {how_texts_look(corpus.language)}, and MiniLM, from which all systems but bm25 start, has read "
            "English: give them a model of your language with --set backbone=FOLDER"
        )
    if 0 < corpus.questions < FEW:
        yield f"{corpus.questions} training questions are too few to learn from; keep them to compare systems on"
    elif 0 < corpus.questions < measured.FEWEST_QUESTIONS.value:
        yield f"nothing was measured with fewer than {measured.FEWEST_QUESTIONS.value:.0f} training questions"
    if corpus.documents > MEASURED:
        yield f"nothing was measured with more than {MEASURED:,} documents; larger numbers are a straight line"
    if machine.gpu and machine.gpu != measured.GPU:
        yield f"figures for a GPU are those of an {measured.GPU}; a {machine.gpu} may take longer"
    if bm25_cost(situation).memory_bytes > machine.memory:
        yield "the documents alone need more memory than is free; docs/scale.md says what can stay on the disk"
    if not corpus.test:
        yield "there are no judged questions to compare systems on; docs/own-documents.md says how to write thirty"


def _shown(commands: Iterable[Words]) -> list[str]:
    return [shlex.join(words) for words in commands]


def lines(advice: Advice) -> list[str]:
    """The advice for a person, line by line."""
    first, *others = advice.suggestions
    text = [_situation_line(advice.situation), "", f"Use {first.system}.", *_block(first)]
    for suggestion in others:
        text += ["", f"Or {suggestion.system}.", *_block(suggestion)]
    if advice.compare:
        text += ["", "Your own questions are the judge:", f"  {shlex.join(advice.compare)}"]
    files = dict.fromkeys(file for suggestion in advice.suggestions for file in suggestion.cost.sources)
    text += ["", *(f"Note: {note}." for note in advice.notes)]
    return [*text, f"All costs are estimates from: {', '.join(files)}."]


def _block(suggestion: Suggestion) -> list[str]:
    cost = suggestion.cost
    limit = "at most" if cost.is_limit else "about"
    spent = f"fit {duration(cost.fit_seconds)}, memory about {readable(cost.memory_bytes)}"
    reasons = [f"  {reason}" for reason in suggestion.why]
    commands = [f"  $ {line}" for line in _shown((*suggestion.fit, *suggestion.use))]
    return [*reasons, f"  cost: {spent}, a query {limit} {_milliseconds(cost.query_ms)}", *commands]


def _situation_line(situation: Situation) -> str:
    corpus, machine = situation.corpus, situation.machine
    asked = f"{corpus.questions:,} training questions about {corpus.covered:.0%} of them"
    written = f", written questions for {corpus.written:.0%}" if corpus.written else ""
    here = f"{machine.cores} cores, {readable(machine.memory)} of memory free, {machine.gpu or 'no GPU'}"
    texts = f"{corpus.documents:,} documents of {corpus.words:.0f} words"
    return f"{corpus.name}: {texts}, {asked if corpus.questions else 'no training questions'}{written}; {here}."


def _milliseconds(value: float) -> str:
    return "1 ms" if value < 1 else f"{value:.0f} ms"
