"""Files of written questions: made in shards, so that an interrupted work goes on where it was, and in parts.

    q.jsonl.work/what.json      what is being written, and from what; other work is refused
                 training/      the tuning, as the training loop keeps it
                 000003.jsonl   a shard: its counts, then a line for each of its documents

The shards are joined into the file and removed. A line is {"_id": …, "texts": […]}, as expansions are read.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triever import artifact, config, progress
from triever.data.datasets import Dataset
from triever.data.formats.sinks import compressed
from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.errors import ArtifactError, UsageError
from triever.files import atomic
from triever.retrievers.pen import Pen
from triever.retrievers.query_writer import QueryWriter

CLAIM, TRAINING = "what.json", "training"
WHOLE = "1/1"

logger = logging.getLogger("triever")


def write_file(
    writer: QueryWriter,
    dataset: Dataset,
    out: str | Path,
    *,
    part: str = WHOLE,
    work: str | Path | None = None,
    save: str | Path | None = None,
) -> dict[str, Any]:
    """Write the questions of a dataset's documents to a file, and say what is in it.

    A writer that has not been fitted is fitted first, and saved where `save` says. The same call goes on where
    one that was interrupted stopped. `part` is "2/4" for the second quarter of the documents.
    """
    store = DocumentStore.of(progress.track(dataset.documents(), "reading documents"))
    store.fingerprint = dataset.fingerprint
    rows = part_of(part, len(store), dataset.name)
    folder = Path(work) if work else Path(out).with_name(f"{Path(out).name}.work")
    with _claimed(folder, _what(writer, store, part), keep=work is not None) as resumed:
        if save:
            artifact.check_place(save, replace=resumed)
        if not writer.is_fitted:
            writer.learn(dataset, store, folder / TRAINING)
        if not _is_first():
            return {}
        if save:
            writer.save(save)
        shards = [
            Shard(folder, number, store, range(low, min(low + writer.shard, rows.stop)))
            for number, low in enumerate(range(rows.start, rows.stop, writer.shard))
        ]
        _write_missing(writer, shards)
        found = _joined(shards, Path(out))
        for shard in shards:
            shard.path.unlink()
    return found


def part_of(part: str, count: int, name: str) -> range:
    """The rows of one of several parts of so many documents.

    >>> part_of("2/4", 10, "toy")
    range(2, 5)
    """
    number, slash, parts = part.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise UsageError(f"part = {part!r} is not a part of a whole", "for the second of four: 2/4")
    rows = range((int(number) - 1) * count // int(parts), int(number) * count // int(parts))
    if not count:
        raise UsageError(f"{name} has no documents to write questions for", "check it with: triever data info")
    if not rows:
        raise UsageError(f"part {part} of {count} documents holds none", "ask for fewer parts")
    return rows


def _what(writer: QueryWriter, store: DocumentStore, part: str) -> dict[str, Any]:
    """What decides the content of the file."""
    own = {"options": config.to_dict(writer), "writer": writer.made_from, "shard": writer.shard}
    return own | {"data": store.fingerprint, "part": part}


@contextmanager
def _claimed(folder: Path, what: dict[str, Any], *, keep: bool) -> Generator[bool]:
    """The folder to work in, if it holds no other work; whether work was begun there before.

    It is removed after the work, and after a failure that left nothing to go on from, unless it is to be kept.
    """
    resumed = _is_begun(folder)
    if resumed:
        _compare(folder, what)
    elif not (folder / CLAIM).exists() and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files", "work in a new folder, or move them away")
    with atomic(folder / CLAIM) as file:
        file.write(json.dumps(what).encode())
    done = False
    try:
        yield resumed
        done = True
    finally:
        if _is_first() and not keep and (done or not _is_begun(folder)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_first() -> bool:
    """Whether this is the process that writes, of several that tune together."""
    return os.environ.get("RANK", "0") == "0"


def _is_begun(folder: Path) -> bool:
    shards = any(folder.glob("[0-9]*.jsonl"))
    return (folder / CLAIM).exists() and (shards or (folder / TRAINING / "training.json").exists())


def _compare(folder: Path, what: dict[str, Any]) -> None:
    hint = "go on with the same command, remove that folder, or name another one with --work"
    try:
        before = json.loads((folder / CLAIM).read_bytes())
        old, new = ({**some, **some["options"]} for some in (before, json.loads(json.dumps(what))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{folder / CLAIM} cannot be read: {error}", hint) from error
    if old["data"] != new["data"]:
        raise UsageError(f"{folder} holds the unfinished questions of other documents", hint)
    for name in sorted({*old, *new} - {"options"}):
        if old.get(name) != new.get(name):
            problem = f"{folder} holds unfinished questions, written with {name} = {old.get(name)!r}"
            raise UsageError(f"{problem}, not {new.get(name)!r}", hint)


@dataclass(frozen=True)
class Shard:
    """Some documents, and the file of their questions."""

    folder: Path
    number: int
    store: DocumentStore
    rows: range

    @property
    def path(self) -> Path:
        """Where it is written."""
        return self.folder / f"{self.number:06}.jsonl"

    def documents(self) -> list[Document]:
        """Those whose questions it holds."""
        return list(DocumentStore(self.store.table.slice(self.rows.start, len(self.rows))))

    def write(self, pen: Pen, tell: Callable[[int, int], object]) -> None:
        """Make it, whole or not at all."""
        started = time.perf_counter()
        questions, counts = pen.write(self.documents(), tell)
        head = {**counts, "seconds": time.perf_counter() - started}
        with atomic(self.path) as file:
            file.write(json.dumps(head).encode() + b"\n")
            for key, texts in questions:
                file.write(json.dumps({"_id": key, "texts": texts}, ensure_ascii=False).encode() + b"\n")

    def read(self) -> tuple[dict[str, float], Iterator[bytes]]:
        """Its counts, and its lines."""
        head, *lines = self.path.read_bytes().splitlines(keepends=True)
        return json.loads(head), iter(lines)


def _write_missing(writer: QueryWriter, shards: list[Shard]) -> None:
    """Write the shards that are not there yet."""
    missing = [shard for shard in shards if not shard.path.exists()]
    total = sum(len(shard.rows) for shard in shards)
    done = total - sum(len(shard.rows) for shard in missing)
    if done:
        logger.info("%d of %d documents have their questions already", done, total)
    if not missing:
        return
    pen, started, drawn = writer.pen(), time.perf_counter(), 0
    with progress.bar("writing questions", total, done) as show:

        def tell(documents: int, questions: int) -> None:
            nonlocal done, drawn
            done, drawn = done + documents, drawn + questions
            show(done, f"{drawn / (time.perf_counter() - started):.1f} questions/s")

        for shard in missing:
            shard.write(pen, tell)


def _joined(shards: list[Shard], out: Path) -> dict[str, Any]:
    """All shards as one file, and what is in it."""
    counts: Counter[str] = Counter()
    with compressed(out) as file:
        for shard in shards:
            head, lines = shard.read()
            counts.update(head)
            for line in lines:
                texts = json.loads(line)["texts"]
                counts.update(documents=1, questions=len(texts), words=sum(len(text.split()) for text in texts))
                file.write(line)
    return {
        "documents": counts["documents"],
        "questions": counts["questions"],
        "questions per second": counts["questions"] / max(counts["seconds"], 1e-9),
        "duplicates dropped": counts["duplicates"] / max(counts["drawn"], 1),
        "empty ones dropped": counts["empty"] / max(counts["drawn"], 1),
        "judged out": counts["judged out"] / max(counts["drawn"], 1),
        "words in a question": counts["words"] / max(counts["questions"], 1),
    }
