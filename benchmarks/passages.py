"""What passages bring where documents are long: `TRIEVER_DATA=... python benchmarks/passages.py`.

Documents are made by joining 20 pages of wiki60k each. They are searched whole and by their passages, beside the pages
apart. Two measures, among the first ten hits: whether the document that holds the page which answers is there, and
whether the passage that was found of it lies in that page. Rows that a file has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import triever
from triever import BM25, DecoderOptions, Dense, DocidTuning, Generative, SearchOptions, Semantic, Tuning, ViewOptions
from triever.data.cut_documents import CutDocuments
from triever.data.cutting import Cut
from triever.data.store import DocumentStore
from triever.lab import results

PAGES = 20
HITS = 10
FORMS = ("apart", "whole", "passages")
SYSTEMS = ("bm25", "dense", "generative")
TRAIN, TEST = "train.nq", "dev.nq"
STEPS = (200, 600)
"""Of dense retrieval, and of the generative system on top of it."""
PLACE = Path(__file__).with_suffix(".json")


class Joined:
    """A dataset whose documents are pages of another one end to end, and where each page is in them."""

    def __init__(self, data: triever.Dataset) -> None:
        pages = list(data.documents())
        random.Random(0).shuffle(pages)  # neighbours in a file are often about one thing
        self.documents: list[triever.Document] = []
        self.places: dict[str, tuple[str, int, int]] = {}
        for first in range(0, len(pages), PAGES):
            name, texts, at = f"joined {first // PAGES}", [], 0
            for page in pages[first : first + PAGES]:
                text = f"# {page.title}\n\n{page.text}"
                self.places[page.id] = name, at, at + len(text)
                texts.append(text)
                at += len(text) + 2
            self.documents.append(triever.Document(name, "\n\n".join(texts)))
        qrels = {split: self._judged(data.qrels(split)) for split in (TRAIN, TEST)}
        queries = [query for split in (TRAIN, TEST) for query in data.queries(split)]
        self.data = triever.Dataset.of(f"{data.name}, {PAGES} pages each", self.documents, queries, qrels)

    def _judged(self, qrels: triever.data.records.Qrels) -> dict[str, dict[str, int]]:
        return {
            query: {self.places[page][0]: grade for page, grade in judged.items() if page in self.places}
            for query, judged in qrels.items()
        }

    def is_in_page(self, hit: triever.Hit, page: str) -> bool:
        """Whether the passage of a hit lies in a page, in part at least."""
        name, start, end = self.places[page]
        return hit.id == name and hit.span is not None and hit.span[0] < end and start < hit.span[1]


def fitted(data: triever.Dataset, cut: Cut, names: Sequence[str], seed: int) -> Iterator[tuple[str, triever.Retriever]]:
    """Systems by name, as recipes/rows/wiki.toml trains them."""
    if "bm25" in names:
        yield "bm25", BM25(cut=cut).fit(data)
    if not {"dense", "generative"} & {*names}:
        return
    same = {"rounds": 4, "holdout": 0.15, "split": TRAIN, "seed": seed}
    tuning = Tuning(steps=STEPS[0], batch=512, learning_rate=5e-5, temperature=0.05, blend=0.5, **same)
    dense = Dense(training=tuning, cut=cut).fit(data)
    yield "dense", dense
    if "generative" in names:
        yield (
            "generative",
            Generative(
                vectors=dense,
                docids=Semantic(branch=32, leaf=32),
                decoder=DecoderOptions(rows="nodes"),
                views=ViewOptions(names=("labelled",)),
                training=DocidTuning(steps=STEPS[1], batch=256, learning_rate=3e-4, **same),
                search_options=SearchOptions(width=150),
                cut=cut,
            ).fit(data),
        )


def measured(pages: triever.Dataset, form: str, names: Sequence[str], seed: int) -> Iterator[dict[str, object]]:
    """A row for each system."""
    joined = Joined(pages)
    data = pages if form == "apart" else joined.data
    queries, qrels = pages.queries(TEST), pages.qrels(TEST)
    for name, retriever in fitted(data, Cut("all" if form == "passages" else "none"), names, seed):
        found = retriever.search_many(queries, HITS)
        documents = in_pages = 0
        for query, result in zip(queries, found, strict=True):
            right = [page for page, grade in qrels[query.id].items() if grade > 0]
            wanted = {page if form == "apart" else joined.places[page][0] for page in right}
            documents += any(hit.id in wanted for hit in result)
            in_pages += any(joined.is_in_page(hit, page) for hit in result for page in right)
        row: dict[str, object] = {"form": form, "system": name, "seed": seed, "documents": len(retriever)}
        row |= {"searched": len(retriever.searched), f"Success@{HITS}": round(documents / len(queries), 4)}
        yield row | ({f"of the page@{HITS}": round(in_pages / len(queries), 4)} if form == "passages" else {})


def right_passages(pages: triever.Dataset) -> float:
    """The share of training questions whose document is long and whose passage lies in the page that answers them."""
    joined = Joined(pages)
    store = DocumentStore.of(joined.documents)
    cut = CutDocuments.of(store, Cut("all"))
    row_of = {passage: row for row, passage in enumerate(cut.passages.ids)}
    asked = pages.qrels(TRAIN)
    inside = []
    for query, judged in cut.dataset(joined.data, store).qrels(TRAIN).items():
        _, start, end = joined.places[next(iter(asked[query]))]
        first, last = cut.spans[row_of[next(iter(judged))]]
        inside.append(first < end and start < last)
    return sum(inside) / len(inside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--seeds", nargs="+", default=[0, 1, 2], type=int)
    parser.add_argument("--data", default="wiki60k")
    parser.add_argument("--out", default=PLACE, type=Path)
    parser.add_argument("--questions", action="store_true", help="only: how many questions get a passage of their page")
    given = parser.parse_args()
    pages = triever.load_dataset(given.data)
    if given.questions:
        row = {"split": TRAIN, "in the right page": round(right_passages(pages), 4)}
        place = given.out.with_stem(f"{given.out.stem}_questions")
        results.write(place, results.benchmark(["python", "benchmarks/passages.py", "--questions"], [row]))
        return
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    for form in given.forms:
        for seed in given.seeds:
            there = {row["system"] for row in rows if (row["form"], row["seed"]) == (form, seed)}
            names = [name for name in given.systems if name not in there and (name != "bm25" or not seed)]
            if not names:
                continue
            for row in measured(pages, form, names, seed):
                print(row, flush=True)
                rows.append(row)
                results.write(given.out, results.benchmark(["python", "benchmarks/passages.py"], rows))


if __name__ == "__main__":
    main()
