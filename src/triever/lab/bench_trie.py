"""Time to build and open the trie, and its size, beside a dict of dicts and marisa-trie, on one file of titles.

Tokenisation is not counted: a WordPiece vocabulary is trained on the titles first, and a row's `build_s`
begins with the numbers. marisa-trie gets the same numbers as two characters each, which is what it holds.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from triever import artifact
from triever.arrays import starts_of
from triever.data.formats.lines import read_lines
from triever.data.formats.problems import Problems
from triever.docids.schemes import learn_pieces
from triever.docids.trie import Paths, Trie
from triever.errors import DataError, MissingExtra

T = TypeVar("T")
Row: TypeAlias = dict[str, object]
Node: TypeAlias = "dict[int, Node]"
VOCABULARY = 30_000
TRAINED_ON = 200_000
DICT_SAMPLE = 200_000
"""A dict of millions of titles fills the memory: it is built from this many, and its numbers are scaled up."""


def bench_trie(path: str | Path, limit: int | None = None) -> list[Row]:
    """One row for each way to hold the docids of a file with one title a line."""
    titles = [title for _, title in itertools.islice(read_lines(path, Problems()), limit)]
    if not titles:
        raise DataError(f"{path} holds no titles", "name a file with one title a line")
    paths = tokenised(titles)
    return [_ours(paths), _dict(paths), *_marisa(paths)]


def tokenised(titles: list[str]) -> Paths:
    """Every title as WordPiece numbers and a stop symbol."""
    tokenizer = learn_pieces(titles[:: max(1, len(titles) // TRAINED_ON)], VOCABULARY)
    stop = tokenizer.get_vocab_size()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(titles)]
    start = starts_of([len(row) + 1 for row in rows])
    flat = np.fromiter(itertools.chain.from_iterable((*row, stop) for row in rows), np.int64, count=int(start[-1]))
    return Paths(flat, start, np.arange(len(rows)))


def _ours(paths: Paths) -> Row:
    seconds, trie = _timed(lambda: Trie.of(paths))
    with tempfile.TemporaryDirectory() as folder:
        _save(trie, folder)
        open_s, _ = _timed(lambda: _open(folder, paths, check=False))
        checked_s, _ = _timed(lambda: _open(folder, paths, check=True))
    about = {"docids": len(paths), "symbols": len(paths.flat), "nodes": trie.parts[0].nodes}
    row = {"name": "triever", "build_s": round(seconds, 2), "bytes": trie.bytes, "mib": round(trie.bytes / 2**20, 1)}
    return row | {"open_ms": round(1000 * open_s, 1), "open_checked_ms": round(1000 * checked_s, 1)} | about


def _save(trie: Trie, folder: str) -> None:
    with artifact.writing(folder) as writer:
        trie.write(writer)
        writer.commit("trie", {}, {}, "bench")


def _open(folder: str, paths: Paths, check: bool) -> Trie:
    width = int(paths.flat.max(initial=0)) + 1
    with artifact.read(folder, check=check) as snapshot:
        return Trie.read(snapshot, width, paths.document)


def _dict(paths: Paths) -> Row:
    """The trie that most of the field's code uses, measured on a sample if there are many docids."""
    count = min(len(paths), DICT_SAMPLE)
    seconds, size = _timed(lambda: _size(_nested(paths, count)))
    scale = len(paths) / count
    row = {"name": "dict of dicts", "build_s": round(seconds * scale, 2), "bytes": int(size * scale)}
    return row | {"mib": round(size * scale / 2**20, 1), "docids": len(paths), "measured_on": count}


def _nested(paths: Paths, count: int) -> Node:
    root: Node = {}
    for number in range(count):
        node = root
        for symbol in paths.flat[paths.start[number] : paths.start[number + 1]].tolist():
            node = node.setdefault(symbol, {})
    return root


def _size(root: Node) -> int:
    waiting, total = [root], 0
    while waiting:
        node = waiting.pop()
        total += sys.getsizeof(node)
        waiting.extend(node.values())
    return total


def _marisa(paths: Paths) -> Iterator[Row]:
    try:
        import marisa_trie
    except ImportError as error:
        raise MissingExtra("the comparison with marisa-trie", "pip install marisa-trie") from error
    words = list(_as_text(paths))
    seconds, trie = _timed(lambda: marisa_trie.Trie(words))
    with tempfile.NamedTemporaryFile() as file:
        trie.save(file.name)
        size = Path(file.name).stat().st_size
    yield {"name": "marisa-trie", "build_s": round(seconds, 2), "bytes": size, "mib": round(size / 2**20, 1)} | {
        "docids": len(paths)
    }


def _as_text(paths: Paths) -> Iterator[str]:
    letters = [chr(0x4E00 + number % 256) for number in range(256)]
    for number in range(len(paths)):
        docid = paths.flat[paths.start[number] : paths.start[number + 1]].tolist()
        yield "".join(letters[symbol // 256] + letters[symbol % 256] for symbol in docid)


def _timed(run: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    outcome = run()
    return time.perf_counter() - started, outcome
