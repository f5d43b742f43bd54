"""Answer questions from documents and cite them: `python examples/rag.py "merge several sorted lists into one"`.

A retriever finds documents, the best of them become the numbered sources of a prompt, and a function from a prompt to
a text answers. Without a language model the answer is a quotation; `own_model` is the place for a model of your own.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass

import triever
from triever.data.filters import parsed_where
from triever.lab.systems import new_system

QUOTED = 2
"""Sources that an answer without a language model quotes."""
NEW_TOKENS = 80
"""Tokens that the small language model writes at most; on two cores that takes some ten seconds."""
CITATION = re.compile(r" ?\[(\d+)\]")


@dataclass(frozen=True)
class Source:
    """A document in a prompt: what a model reads of it, and the sentences that say most about the question."""

    title: str
    passage: str
    quotation: str


@dataclass(frozen=True)
class Prompt:
    """A question and the sources that may answer it; as text, what a language model reads."""

    question: str
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        sources = (f"[{number}] {source.title}: {source.passage}" for number, source in enumerate(self.sources, 1))
        task = (
            "Answer in one sentence, only from these sources, and cite them by number. If they do not answer, say so."
        )
        return "\n\n".join(("Sources:", *sources, f"Question: {self.question}", task))


def prompt_of(question: str, hits: triever.Result, budget: int) -> Prompt:
    """The prompt with the best hits, whose passages have at most `budget` words together.

    What matched of a document is its passage if that is no more than its share of the budget, and else its snippet.
    """
    sources: list[Source] = []
    left = budget
    for hit in hits:
        text, quotation = hit.passage.split(), str(hit.snippet).split()
        passage = text if len(text) <= budget // len(hits) else quotation
        if len(passage) <= left:
            sources.append(Source(hit.title or hit.id, " ".join(passage), " ".join(quotation)))
            left -= len(passage)
    return Prompt(question, tuple(sources))


def quoted(prompt: Prompt) -> str:
    """An answer without a language model: what the best sources say about the question."""
    best = enumerate(prompt.sources[:QUOTED], 1)
    return "\n".join(f"{source.quotation} [{number}]" for number, source in best)


def small_model(prompt: Prompt) -> str:
    """The first line that SmolLM2 writes; it is small, and likes to repeat its sources.

    `triever weights install smollm2` installs it.
    """
    from transformers import AutoTokenizer

    from triever.models.backbones import load_backbone

    backbone = load_backbone("smollm2")
    tokenizer, model = AutoTokenizer.from_pretrained(backbone.folder), backbone.causal_module()
    messages = [{"role": "user", "content": str(prompt)}]
    read = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    written = model.generate(**read, max_new_tokens=NEW_TOKENS, do_sample=False)
    text = tokenizer.decode(written[0, read["input_ids"].shape[1] :], skip_special_tokens=True)
    return text.strip().partition("\n")[0]


def own_model(prompt: Prompt) -> str:
    """The answer of your own language model."""
    text = str(prompt)
    # >>> Put your language model here: it reads `text`, and what it writes is returned. <<<
    raise triever.UsageError(f"no model reads these {len(text)} letters yet", "write own_model in examples/rag.py")


MODELS = {"smollm2": small_model, "own": own_model}


def answer(prompt: Prompt, llm: str = "") -> str:
    """The answer to a prompt, with citations: what a language model writes, or a quotation without one."""
    return cited(MODELS[llm](prompt), prompt) if llm else quoted(prompt)


def cited(text: str, prompt: Prompt) -> str:
    """The text without citations of sources that do not exist; if none is left, the most similar source is cited."""
    known = range(1, len(prompt.sources) + 1)
    text = CITATION.sub(lambda found: found[0] if int(found[1]) in known else "", text.strip())
    if CITATION.search(text):
        return text
    words = set(text.casefold().split())
    shared = [len(words.intersection(source.passage.casefold().split())) for source in prompt.sources]
    return f"{text} [{shared.index(max(shared)) + 1}]"


def main() -> None:
    """Answer the questions on the command line."""
    parser = argparse.ArgumentParser(description="Answer questions from documents and cite them.")
    parser.add_argument("questions", nargs="+", metavar="QUESTION")
    parser.add_argument("--data", default="python", help="the documents; `python` is the documentation of your Python")
    parser.add_argument("--system", default="bm25", help="the retriever that is fitted to them, such as dense")
    parser.add_argument("--model", help="a saved retriever, instead of --data and --system")
    parser.add_argument("--where", action="append", default=[], help="a condition on metadata, such as kind=class")
    parser.add_argument("-k", type=int, default=3, help="documents to find")
    parser.add_argument("--words", type=int, default=300, help="words of all passages in a prompt, at most")
    parser.add_argument("--llm", choices=MODELS, default="", help="a language model that writes the answers")
    try:
        answer_all(parser.parse_args())
    except triever.TrieverError as error:
        sys.exit(f"rag.py: {error}")


def answer_all(arguments: argparse.Namespace) -> None:
    """Print an answer to each question, with its sources below it, or a sentence that says that there is none."""
    if arguments.model:
        retriever = triever.load(arguments.model)
    else:
        retriever = new_system(arguments.system, []).fit(triever.load_dataset(arguments.data))
    for question in arguments.questions:
        hits = retriever.search(question, k=arguments.k, where=parsed_where(arguments.where))
        prompt = prompt_of(question, hits, arguments.words)
        text = answer(prompt, arguments.llm) if prompt.sources else "No document says anything about it."
        listed = (f"[{number}] {source.title}\n" for number, source in enumerate(prompt.sources, 1))
        print("\n".join((f"== {question}", text, "", "".join(listed))).rstrip() + "\n")


if __name__ == "__main__":
    main()
