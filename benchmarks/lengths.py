"""How much text datasets hold: words, and the tokens of MiniLM that are read of each document.

`triever suggest` divides seconds that were measured on these datasets by these numbers, and so has seconds for others.

    TRIEVER_DATA=... python benchmarks/lengths.py python wiki60k nq-gold scifact squad-partial
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import triever
from triever.lab import results
from triever.models.backbones import load_backbone
from triever.models.tokens import TextTokenizer, Tokens
from triever.terminal import emit, table

LENGTHS = (64, 256)
"""Tokens of a document that are read: by the quickstart, and by dense retrieval where nothing is set."""


def described(name: str, tokenizer: TextTokenizer) -> dict[str, str | int]:
    """The documents of a dataset, their words, all their tokens, and those that are read."""
    texts = [f"{document.title} {document.text}".strip() for document in triever.load_dataset(name).documents()]
    words = sum(len(text.split()) for text in texts)
    whole = Tokens.of(texts, tokenizer, 100_000).lengths
    read = {f"tokens_of_{length}": int(whole.clip(max=length).sum()) for length in LENGTHS}
    return {"system": name, "documents": len(texts), "words": words, "tokens": int(whole.sum()), **read}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    words = parser.parse_args()
    tokenizer = load_backbone("minilm").tokenizer
    rows = [described(name, tokenizer) for name in words.data]
    emit(table(rows))
    results.write(words.out, results.benchmark(["python", "benchmarks/lengths.py", *sys.argv[1:]], rows))


if __name__ == "__main__":
    main()
