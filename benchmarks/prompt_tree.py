"""What a search remembers of a prompt: shared by all prefixes of a beam, or copied for each; time and memory.

One query in a long prompt, titles of wiki60k in SmolLM2's own tokens, a beam of 20, on a processor.

    TRIEVER_DATA=... python benchmarks/prompt_tree.py [--tokens 50 200] [--documents 1000]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import triever
from triever.data.sampling import sample
from triever.docids.walk import Walk
from triever.engines.docids import DocidEngine
from triever.lab import results
from triever.models.causal import CausalGenerator, CopyingGenerator
from triever.models.token_decoder import TokenDecoder
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.terminal import emit, table

WAYS = {"copied": CopyingGenerator, "shared": CausalGenerator}
REPEATS = 5
"""The quickest counts: other programs only make a search slower."""
OPTIONS = BeamOptions(width=20)


class Weighed:
    """A generator whose cache is weighed whenever it grows."""

    def __init__(self, generator: Any) -> None:
        self.generator, self.bytes = generator, 0
        self.width, self.device, self.logits = generator.width, generator.device, generator.logits

    def prefill(self, prompts: list[str]) -> Any:
        return self._weighed(self.generator.prefill(prompts))

    def extend(self, cache: Any, parents: torch.Tensor, tokens: torch.Tensor) -> Any:
        return self._weighed(self.generator.extend(cache, parents, tokens))

    def _weighed(self, outcome: Any) -> Any:
        layers = outcome[0].past.layers
        self.bytes = max(self.bytes, sum(layer.keys.nbytes + layer.values.nbytes for layer in layers))
        return outcome


def measured(way: str, engine: DocidEngine, query: str, tokens: int) -> tuple[dict[str, object], list[Any]]:
    """The seconds of a search, the most bytes that are remembered between two steps, and the hits."""
    model, docids = engine.docids.model, engine.docids
    assert isinstance(model, TokenDecoder)
    pad = model.encoder.tokenizer.pad
    reading = docids.reading

    def tokenise(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        return reading.query_tokens(model, texts, tokens).all_padded(pad)

    walk, seconds, hits = Walk(docids.trie), [], []
    for _ in range(REPEATS):
        generator = Weighed(WAYS[way](model, tokenise))
        begin = time.perf_counter()
        hits = documents(walk, beam(generator, *generator.prefill([query]), walk, OPTIONS), 10)[0]
        seconds.append(time.perf_counter() - begin)
    length = int(tokenise([query])[1].sum())
    row = {"system": way, "prompt_tokens": length, "beam": OPTIONS.width, "seconds": round(min(seconds), 3)}
    return {**row, "cache_mb": round(generator.bytes / 2**20, 1)}, hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    words = parser.parse_args()
    data = sample(triever.load_dataset("wiki60k"), words.documents, splits=["dev.nq"])
    titles, nothing = triever.Title(tokenizer="backbone"), triever.DocidTuning(steps=0)
    engine = triever.Generative(backbone="smollm2", docids=titles, training=nothing).fit(data).engine
    query = " ".join(document.text for document in data.documents())[:20_000]
    rows = []
    for tokens in words.tokens:
        (copied, expected), (shared, hits) = (measured(way, engine, query, tokens) for way in WAYS)
        same = [number for number, _ in hits] == [number for number, _ in expected]
        rows += [copied, {**shared, "same_hits": same}]
    emit(table(rows))
    results.write(words.out, results.benchmark(["python", "benchmarks/prompt_tree.py", *sys.argv[1:]], rows))


if __name__ == "__main__":
    main()
