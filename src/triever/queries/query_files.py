"""Files of generated questions. They are made in shards, so that interrupted work goes on where it was, and in parts.

    q.jsonl.work/triever-work.json   what is written and from what, so that other work is refused
                 training/           the checkpoints of the tuning
                 000003.jsonl        a shard: its counts and a hash, then a line for each of its documents

At the end the shards are joined into the file and removed. A line is {"_id": …, "texts": […]}, as expansions are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa

from triever import artifact, config, progress, work_folder
from triever.data.datasets import Dataset
from triever.data.formats.sinks import compressed
from triever.data.store import DocumentStore
from triever.errors import ArtifactError, UsageError
from triever.files import atomic, open_regular
from triever.models.elsewhere import Block, Work, place_of_work
from triever.queries.query_writer import QueryWriter
from triever.queries.question_sampler import QuestionSampler

TRAINING = "training"
NUMBER = "shard"
"""The column with the number of a shard, beside its documents."""
Tell: TypeAlias = Callable[[int, int], object]
"""Takes the numbers of documents and of drawn questions of a batch."""
WHOLE = "1/1"
LARGEST = 2**30
"""The most bytes of a shard; a usual shard has a thousandth of that."""

logger = logging.getLogger("triever")


def write_file(
    writer: QueryWriter,
    dataset: Dataset,
    out: str | Path,
    *,
    part: str = WHOLE,
    work: str | Path | None = None,
    save: str | Path | None = None,
) -> dict[str, float]:
    """Write questions for a dataset's documents to a file, and return counts of what is in it.

    A writer that has not been fitted is fitted first, and saved to `save`. After an interruption, the same call goes on
    where the first one stopped. `part` is "2/4" for the second quarter of the documents.
    """
    store = DocumentStore.of(progress.track(dataset.documents(), "reading", unit="documents"))
    store.fingerprint = dataset.fingerprint
    rows = part_of(part, len(store), dataset.name)
    folder = work_of(out, work)
    with _claimed(folder, _description(writer, store, part), keep=work is not None) as resumed:
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
        counts = _joined(shards, Path(out))
        for shard in shards:
            shard.path.unlink()
    return counts


def work_of(out: str | Path, work: str | Path | None = None) -> Path:
    """The folder for unfinished work: the named one, or one beside the file."""
    return Path(work) if work else Path(out).with_name(f"{Path(out).name}.work")


def part_of(part: str, count: int, name: str) -> range:
    """The rows of a part such as "2/4" of `count` documents.

    >>> part_of("2/4", 10, "toy")
    range(2, 5)
    """
    number, slash, parts = part.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise UsageError(f"part = {part!r} should be of the form NUMBER/COUNT", "for the second of four parts: 2/4")
    rows = range((int(number) - 1) * count // int(parts), int(number) * count // int(parts))
    if not count:
        raise UsageError(f"{name} has no documents to write questions for", "check it with: triever data info")
    if not rows:
        raise UsageError(f"part {part} of {count} documents is empty", "use fewer parts")
    return rows


def _description(writer: QueryWriter, store: DocumentStore, part: str) -> dict[str, object]:
    """Everything that decides the content of the file."""
    return {
        "kind": writer.kind,
        "options": config.to_dict(writer),
        "writer": writer.made_from,
        "shard": writer.shard,
        "documents": store.fingerprint,
        "part": part,
    }


@contextmanager
def _claimed(folder: Path, description: dict[str, object], *, keep: bool) -> Generator[bool]:
    """Claim a work folder that holds no other work; yields whether this work was begun there before.

    Without `keep`, the folder is removed at the end, and also after a failure that left nothing to go on from.
    """
    resumed = work_folder.is_begun(folder)
    work_folder.claim(folder, description)
    removed = not keep and _is_first()
    try:
        yield resumed
    except BaseException:
        if removed:
            work_folder.discard(folder)
        raise
    if removed:
        work_folder.remove(folder)


def _is_first() -> bool:
    """Whether this process is the one that writes, of several that tune together."""
    return os.environ.get("RANK", "0") == "0"


@dataclass(frozen=True)
class Shard:
    """A slice of the documents, and the file of their questions."""

    folder: Path
    number: int
    store: DocumentStore
    rows: range

    @property
    def path(self) -> Path:
        """The file of the shard."""
        return self.folder / f"{self.number:06}.jsonl"

    @property
    def table(self) -> pa.Table:
        """The documents of the shard, with its number beside each."""
        documents = self.store.table.slice(self.rows.start, len(self.rows))
        return documents.append_column(NUMBER, pa.array([self.number] * len(documents)))

    def write(self, sampler: QuestionSampler, tell: Tell) -> None:
        """Write the questions of the documents to the file, whole or not at all."""
        with atomic(self.path) as file:
            _write_questions(sampler, self.table, file, tell)

    def read(self) -> tuple[dict[str, float], list[bytes]]:
        """The counts and the lines of the file; an ArtifactError if it was changed after it was written."""
        try:
            with open_regular(self.path, LARGEST) as file:
                head, *lines = file.read().splitlines(keepends=True)
            header = json.loads(head)
            counts = header["counts"]
            is_whole = header["sha256"] == _sha256(self.number, counts, lines) and len(lines) == len(self.rows)
        except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
            raise ArtifactError(f"{self.path} cannot be read: {error}", "run the same command again") from error
        if not is_whole:
            raise ArtifactError(f"{self.path} was changed after it was written", "run the same command again")
        return counts, lines

    def is_written(self) -> bool:
        """Whether the file exists and is whole; a damaged one has to be written again."""
        if not self.path.exists():
            return False
        try:
            self.read()
        except ArtifactError as error:
            logger.warning("%s, so its questions are written again", error.problem)
            return False
        return True


def _write_questions(sampler: QuestionSampler, documents: pa.Table, file: BinaryIO, tell: Tell) -> None:
    """Write the questions of a shard's documents, after their counts and a hash."""
    started = time.perf_counter()
    number = documents[NUMBER][0].as_py()
    questions, counts = sampler.write([*DocumentStore(documents.drop_columns(NUMBER))], tell)
    items = ({"_id": key, "texts": texts} for key, texts in questions)
    lines = [json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in items]
    counts = {**counts, "seconds": time.perf_counter() - started}
    head = {"counts": counts, "sha256": _sha256(number, counts, lines)}
    file.writelines([json.dumps(head).encode() + b"\n", *lines])


def _sha256(number: int, counts: Mapping[str, float], lines: Iterable[bytes]) -> str:
    """The hash of the content and of the shard's number, so that one shard is not taken for another."""
    digest = hashlib.sha256(json.dumps([number, counts], sort_keys=True).encode())
    for line in lines:
        digest.update(line)
    return digest.hexdigest()


@dataclass(frozen=True)
class Writing:
    """What a worker elsewhere does: it writes the questions of shards."""

    writer: QueryWriter

    def begin(self, device: str) -> Work:
        """The writer with its model on a device."""
        sampler = self.writer.sampler(device)
        return lambda documents, file: _write_questions(sampler, documents, file, lambda _documents, _questions: None)


def _write_missing(writer: QueryWriter, shards: list[Shard]) -> None:
    """Write the shards that are missing or damaged."""
    missing = [shard for shard in shards if not shard.is_written()]
    total = sum(len(shard.rows) for shard in shards)
    done = total - sum(len(shard.rows) for shard in missing)
    if done:
        logger.info("%d of %d documents have their questions already", done, total)
    if not missing:
        return
    place = place_of_work()
    if place and len(missing) > 1:
        blocks = (Block(shard.path, shard.table) for shard in missing)
        place.work(Writing(writer.for_worker()), blocks, "writing questions")
        return
    sampler, started, drawn = writer.sampler(), time.perf_counter(), 0
    with progress.bar("writing questions", total, done, unit="documents") as show:

        def tell(documents: int, questions: int) -> None:
            nonlocal done, drawn
            done, drawn = done + documents, drawn + questions
            show(done, f"{drawn / (time.perf_counter() - started):.1f} questions/s")

        for shard in missing:
            shard.write(sampler, tell)


def _joined(shards: list[Shard], out: Path) -> dict[str, float]:
    """Join all shards into one file, and return counts of what is in it."""
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
