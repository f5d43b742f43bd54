"""Prompts: the words around a query, behind which a language model writes the title of a document.

A template has `{query}` where the query stands. The sentences are those of the paper that compared generative and dense
retrieval; it puts them before the query. A language model then continues the query, so by default the query comes first
here and the sentence last, which asks for a title to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from triever.errors import UsageError, nearest
from triever.models.backbones import Backbone
from triever.models.tokens import TextTokenizer, Tokens

QUERY = "{query}"
ASK = "Given the question, predict the document title that most likely contains the answer. The title is:"
THINK = "Briefly think about the document title that may contain the answer to this question."
PROMPTS = {"question": f"Question: {QUERY}\n{ASK}", "paper": f"{ASK} {QUERY}"}
"""Templates by name; the first one is used where none is set."""
THINKING = {"question": f"Question: {QUERY}\n{THINK}\nThought:", "paper": f"{THINK} {QUERY}"}
"""What a thought follows, by the name of the template; templates without a name have the first one."""
LONGEST_THOUGHT = 4096
"""Tokens of a thought, at most, also where a backbone reads any number of them."""
QUESTION = 16
"""Tokens of a question that have room beside the longest thought."""
ANYTHING = "?"
"""What stands before a title where a template ends with its query."""


@dataclass(frozen=True)
class Prompt:
    """A template: `Prompt("Question: {query}\\nThe title is:")`."""

    template: str

    def __post_init__(self) -> None:
        if self.template.count(QUERY) != 1:
            times = "has no" if QUERY not in self.template else "has more than one"
            names = nearest(self.template, PROMPTS)
            raise UsageError(f"prompt = {self.template!r} {times} {QUERY}, where the question stands", names)
        # The blanks at the end belong to the title: a language model writes them with its first word.
        object.__setattr__(self, "template", self.template.rstrip(" "))

    @cached_property
    def _around(self) -> tuple[str, str]:
        head, _, tail = self.template.partition(QUERY)
        return head, tail

    @property
    def name(self) -> str:
        """Its name among the templates that have one, else the template itself."""
        return next((name for name, template in PROMPTS.items() if template == self.template), self.template)

    @property
    def end(self) -> str:
        """The words that a title stands behind."""
        return self._around[1] or ANYTHING

    def around(self, tokenizer: TextTokenizer) -> tuple[list[int], list[int]]:
        """The tokens before and behind a query that is there as tokens already."""
        head, tail = self._around
        before, after = tokenizer.mark_ids([head.rstrip(" "), tail])
        return [*tokenizer.before, *before], after

    def ids(self, tokenizer: TextTokenizer, queries: Sequence[str], limit: int) -> list[list[int]]:
        """The tokens of whole prompts, at most `limit` each: a query is cut, the words around it never are."""
        rows = self._whole(tokenizer, queries)
        long = [row for row, ids in enumerate(rows) if len(ids) > limit]
        if long:
            spare = limit - sum(map(len, self.around(tokenizer)))
            for row in long:
                rows[row] = self._cut(tokenizer, queries[row], spare, limit)
        return rows

    def _cut(self, tokenizer: TextTokenizer, query: str, length: int, limit: int) -> list[int]:
        """The tokens of a prompt with no more than `length` tokens of its query."""
        while length > 0:
            ids = self._whole(tokenizer, tokenizer.cut([query], length))[0]
            if len(ids) <= limit:
                return ids
            length -= len(ids) - limit  # a token more or less where the query meets the words around it
        return self._whole(tokenizer, [""])[0]

    def _whole(self, tokenizer: TextTokenizer, queries: Sequence[str]) -> list[list[int]]:
        head, tail = self._around
        return [[*tokenizer.before, *ids] for ids in tokenizer.framed_ids(head, queries, tail)]

    def tokens(self, tokenizer: TextTokenizer, queries: Sequence[str], limit: int) -> Tokens:
        """The same side by side."""
        return Tokens.from_lists(self.ids(tokenizer, queries, limit), tokenizer.size)


@dataclass(frozen=True)
class Prompts:
    """What a title follows, and what a thought about a question follows: `Prompts.of("paper")`."""

    asking: Prompt
    thinking: Prompt

    @classmethod
    def of(cls, name: str) -> Prompts:
        """The templates of a name, or a template and the first one for thoughts; the first ones for nothing."""
        first = next(iter(PROMPTS))
        return cls(Prompt(PROMPTS.get(name or first, _unescaped(name))), Prompt(THINKING.get(name, THINKING[first])))

    def longest_thought(self, backbone: Backbone, title: int) -> int:
        """How many tokens a thought may have beside a short question, the words around it, and a title of so many."""
        if not backbone.longest:
            return LONGEST_THOUGHT
        asking, thinking = (sum(map(len, part.around(backbone.tokenizer))) for part in (self.asking, self.thinking))
        return max(0, min(LONGEST_THOUGHT, backbone.longest - QUESTION - max(asking + title, thinking)))

    def check_thought(self, think: int, backbone: Backbone, title: int) -> None:
        """Refuse a thought of so many tokens that the question behind it would be cut to nothing."""
        most = self.longest_thought(backbone, title)
        if think > most:
            problem = f"search_options.think = {think} is too long: a thought of {backbone.name} may have {most} tokens"
            why = f" beside a prompt and a title, because it reads {backbone.longest}" if backbone.longest else ""
            hint = f"set search_options.think={most} or less" if most else "set a shorter prompt, or leave think out"
            raise UsageError(problem + why, hint)


def _unescaped(template: str) -> str:
    r"""A template with line breaks and tabs where a shell has left a backslash and a letter.

    >>> _unescaped(r"{query}\nTitle:")
    '{query}\nTitle:'
    """
    return template.replace(r"\n", "\n").replace(r"\t", "\t")
