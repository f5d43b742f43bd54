"""The pictures in docs/page.md, of a server for the documentation of Python: `python -m tests.page_pictures`.

What is served is fitted once and kept in a folder: BM25, dense retrieval with MiniLM as it comes, generative retrieval
as the quickstart trains it, and an answerer with SmolLM2. It needs Chromium, and Pillow for small files.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.serve.browser import PHONE, ROOT, WIDE, Tab, browser, tab
from tests.serve.running import KEY, options, running
from triever import BM25, Dataset, Dense, DocidTuning, Generative, Retriever, SearchOptions, Semantic, ViewOptions, load
from triever.artifact import is_artifact
from triever.data.cache import cache_folder
from triever.data.datasets import load_dataset
from triever.retrievers.answerer import Answerer, ReaderTuning

FOLDER = ROOT / "docs" / "figures" / "page"
QUALITY = 72
"""Of WebP: letters stay sharp, and all pictures together are below 2 MB."""
ASKED = "q=merge+several+sorted+lists+into+one"
QUESTION = "q=Which+class+retrieves+entries+in+priority+order?"


def dense(data: Dataset) -> Retriever:
    return Dense(backbone="minilm", document_length=64).fit(data)


def generative(data: Dataset, folder: Path) -> Retriever:
    """Semantic docids whose rows begin as vectors, as the quickstart trains them in a few minutes."""
    return Generative(
        docids=Semantic(branch=20, leaf=20),
        vectors=load(folder / "dense"),
        passages=0,
        views=ViewOptions(names=("labelled",)),
        training=DocidTuning(steps=150, batch=256, rounds=3, learning_rate=4e-3),
        search_options=SearchOptions(width=50),
    ).fit(data)


def answerer(data: Dataset) -> Retriever:
    reading = ReaderTuning(steps=0)
    return Answerer(backbone="smollm2", training=reading, read_documents=3, word_for_word=True).fit(data)


def fitted(folder: Path) -> dict[str, Path]:
    """The folders of what is served; what is not there yet is fitted."""
    makers: dict[str, Callable[[Dataset], Retriever]] = {
        "bm25": lambda data: BM25().fit(data),
        "dense": dense,
        "generative": lambda data: generative(data, folder),
        "answerer": answerer,
    }
    for name, make in makers.items():
        if not is_artifact(folder / name):
            make(load_dataset("python").with_expansions("python")).save(folder / name)
    return {name: folder / name for name in makers}


def opened(address: str) -> Callable[[Tab], object]:
    return lambda page: page.open(address)


def lit_tree(page: Tab) -> None:
    page.open(f"?view=docids&{ASKED}&with=generative")
    page.page.wait_for_selector(".branch.lit[aria-level='3']")


def answered(page: Tab) -> None:
    page.open(f"?view=ask&{QUESTION}")
    page.page.wait_for_selector(".answer", timeout=60_000)


def added(page: Tab) -> None:
    """A document is added, found, and deleted again, so that the next picture begins the same."""
    page.open("?view=documents&with=bm25")
    page.page.fill("#key", KEY)
    page.page.fill("#add-id", "handbook.hail")
    page.page.fill("#add-title", "Why it hails")
    page.page.fill("#add-text", "Updraughts lift raindrops until they freeze, and let them fall when they are heavy.")
    page.page.locator("form[aria-label='Add a document'] button").click()
    page.page.wait_for_selector(".success")
    page.page.evaluate(
        "fetch('v1/documents?id=handbook.hail&retriever=bm25', {method: 'DELETE', headers: {Authorization: 'Bearer "
        f"{KEY}'}}}})"
    )


def failed(page: Tab) -> None:
    page.open("?q=sort&where=class")
    page.page.wait_for_selector(".failure")


PICTURES: dict[str, Callable[[Tab], Any]] = {
    "start": opened(""),
    "search": opened(f"?{ASKED}&with=bm25"),
    "compare": opened(f"?{ASKED}&with=bm25&with=dense&with=generative"),
    "document": opened(f"?{ASKED}&with=bm25&doc=heapq.merge&of=bm25"),
    "why-beam": opened(f"?view=why&{ASKED}&with=generative"),
    "why-tokens": opened(f"?view=why&{ASKED}&with=dense"),
    "docids": lit_tree,
    "results": opened("?view=results"),
    "ask": answered,
    "documents": added,
    "failure": failed,
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("pictures", nargs="*", help="which pictures to make; all by default")
    words.add_argument("--models", type=Path, default=cache_folder() / "pictures", help="where retrievers are kept")
    words.add_argument("--out", type=Path, default=FOLDER, help="where pictures are written")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    served = options(results=str(ROOT / "results"), deadline=60)
    with running(fitted(given.models), served, seconds=120) as server, browser() as own:
        for scheme in ("light", "dark"):
            for shape, size in (("wide", WIDE), ("phone", PHONE)):
                with tab(own, server.url, size, scheme) as page:
                    for name in given.pictures or PICTURES:
                        PICTURES[name](page)
                        save(page.page.screenshot(), given.out / f"{name}-{shape}-{scheme}.webp")


def save(picture: bytes, path: Path) -> None:
    """Write a picture as a small file."""
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, "WEBP", quality=QUALITY, method=6)


if __name__ == "__main__":
    main()
