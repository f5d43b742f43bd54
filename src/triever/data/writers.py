"""Writers of documents, queries, judgements, runs and whole datasets.

The ending of the name decides the format: .jsonl, .tsv or .parquet; .gz or .zst may follow the first two.
Records that the readers would refuse are not written, and files appear whole or not at all.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import SupportsIndex, TypeVar

from triever.data.dataset import Dataset
from triever.data.formats.fields import MAX_GRADE, clean_id
from triever.data.formats.json_text import check_escapes
from triever.data.formats.parquet import Row, write_parquet
from triever.data.formats.sinks import compressed
from triever.data.records import Document, Hit, Qrels, Query, Run, ranked
from triever.data.splits import ALL
from triever.errors import DataError, Flaw, UsageError, nearest
from triever.files import atomic_folder
from triever.progress import phase

__all__ = ["write_dataset", "write_documents", "write_qrels", "write_queries", "write_run"]

R = TypeVar("R", Document, Query)
_BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_COMPRESSED = re.compile(r"\.(gz|zst|zstd)$")


def write_documents(path: str | Path, documents: Iterable[Document], *, titled: bool | None = None) -> None:
    """Write documents as JSON lines, Parquet or MS MARCO's TSV.

    TSV cannot hold line breaks, expansions and metadata: breaks become spaces, the rest is lost. It has the
    columns `id url title body` if documents have titles, else `id text`; where `titled` says nothing, the first one
    decides.
    """
    checked = _checked(documents, "document")
    form = _format(path)
    if form == ".parquet":
        write_parquet(path, map(document_row, checked), "documents")
    elif form == ".tsv":
        first = next(checked, None)
        has_titles = bool(first and first.title) if titled is None else titled
        render = _marco_line if has_titles else _pair_line
        _write_lines(path, chain([first] if first else [], checked), render)
    else:
        _write_lines(path, checked, lambda document: _json_line(document_row(document)))


def write_queries(path: str | Path, queries: Iterable[Query]) -> None:
    """Write queries as JSON lines (answers and evidence in the metadata), Parquet, or TSV of id and text alone."""
    checked = _checked(queries, "query")
    form = _format(path)
    if form == ".parquet":
        write_parquet(path, map(query_row, checked), "queries")
    elif form == ".tsv":
        _write_lines(path, checked, _pair_line)
    else:
        _write_lines(path, checked, lambda query: _json_line(query_row(query)))


def write_qrels(path: str | Path, qrels: Qrels) -> None:
    """Write judgements as BEIR's TSV with a header, as Parquet, or with any other ending as TREC's lines."""
    name = _COMPRESSED.sub("", str(path))
    if name.endswith(".parquet"):
        names = ("query-id", "corpus-id", "score")
        write_parquet(path, (dict(zip(names, row, strict=True)) for row in _judgements(qrels)), "qrels")
    elif name.endswith(".tsv"):
        body = (f"{query}\t{document}\t{grade}" for query, document, grade in _judgements(qrels))
        _write_text(path, chain(["query-id\tcorpus-id\tscore"], body))
    else:
        _write_text(path, (_columns(query, "0", document, grade) for query, document, grade in _judgements(qrels)))


def write_run(path: str | Path, run: Run, tag: str = "triever") -> None:
    """Write a TREC run, with scores at full precision and ranks in the order that every tool computes."""
    if tag.split() != [tag]:
        raise UsageError(f"the tag {tag!r} should be one word", "for example: tag='bm25'")
    _write_text(path, (line for query, hits in run.items() for line in _run_lines(query, ranked(hits), tag)))


@phase("writing a dataset")
def write_dataset(folder: str | Path, dataset: Dataset, to: str = "beir") -> None:
    """Write a dataset as a new folder: `beir` (gzipped), `parquet` or `msmarco`."""
    if to not in _LAYOUTS:
        raise UsageError(f"there is no layout {to!r}", nearest(to, _LAYOUTS))
    for split in dataset.splits:
        if "/" in split or split.startswith("."):
            raise DataError(f"the split {split!r} cannot be the name of a file", "rename it")
    with atomic_folder(folder) as root:
        _LAYOUTS[to](root, dataset)


def document_row(document: Document) -> Row:
    """A document's named fields, without those that are empty."""
    row: Row = {"_id": document.id, "title": document.title, "text": document.text}
    if document.expansions:
        row["expansions"] = list(document.expansions)
    return row | {"metadata": dict(document.metadata)} if document.metadata else row


def query_row(query: Query) -> Row:
    """A query's named fields, as BEIR has them."""
    metadata = dict(query.metadata)
    if query.answers:
        metadata["answers"] = list(query.answers)
    if query.evidence:
        metadata["evidence"] = [list(ids) for ids in query.evidence]
    row = {"_id": query.id, "text": query.text}
    return row | {"metadata": metadata} if metadata else row


def _beir(root: Path, dataset: Dataset, ending: str = ".jsonl.gz", qrels: str = ".tsv") -> None:
    write_documents(root / f"corpus{ending}", dataset.documents())
    judged = [split for split in dataset.splits if dataset.is_judged(split)]
    queries = {query.id: query for split in judged for query in dataset.queries(split)}
    if judged:
        write_queries(root / f"queries{ending}", queries.values())
    for split in dataset.splits:
        if split in judged:
            write_qrels(root / "qrels" / f"{split}{qrels}", dataset.qrels(split))
        else:
            name = "unjudged" if judged and split == ALL else split  # "all" is the file that the judged splits share
            write_queries(root / f"queries.{name}{ending}", dataset.queries(split))


def _parquet(root: Path, dataset: Dataset) -> None:
    _beir(root, dataset, ".parquet", ".parquet")


def _msmarco(root: Path, dataset: Dataset) -> None:
    titled = any(document.title for document in dataset.documents())
    write_documents(root / "collection.tsv", dataset.documents(), titled=titled)
    for split in dataset.splits:
        write_queries(root / f"queries.{split}.tsv", dataset.queries(split))
        if dataset.is_judged(split):
            lines = (f"{query}\t0\t{document}\t{grade}" for query, document, grade in _judgements(dataset.qrels(split)))
            _write_text(root / f"qrels.{split}.tsv", lines)


_LAYOUTS: dict[str, Callable[[Path, Dataset], None]] = {"beir": _beir, "parquet": _parquet, "msmarco": _msmarco}


def _format(path: str | Path) -> str:
    ending = Path(_COMPRESSED.sub("", str(path))).suffix
    if ending not in (".jsonl", ".tsv", ".parquet"):
        raise UsageError(f"the name {path} does not say the format of the file", "end it with .jsonl, .tsv or .parquet")
    return ending


def _checked(records: Iterable[R], kind: str) -> Iterator[R]:
    """The records; an error if two ids are the same, or one cannot be read again."""
    seen: set[int] = set()
    for record in records:
        _check_id(record.id, f"{kind} id")
        if hash(record.id) in seen:
            raise DataError(f"a second {kind} with the id {record.id}", "give every record its own id")
        seen.add(hash(record.id))
        yield record


def _check_id(value: str, field: str) -> None:
    try:
        clean_id(value, field)
    except Flaw as flaw:
        raise DataError(flaw.problem, flaw.hint) from None


def _write_lines(path: str | Path, records: Iterable[R], render: Callable[[R], str]) -> None:
    with compressed(path) as file:
        for record in records:
            try:
                file.write(render(record).encode() + b"\n")
            except (Flaw, ValueError, TypeError, RecursionError) as error:
                raise DataError(f"{record.id} cannot be written: {error}", "clean its text or metadata") from error


def _write_text(path: str | Path, lines: Iterable[str]) -> None:
    with compressed(path) as file:
        file.writelines(line.encode() + b"\n" for line in lines)


def _json_line(row: Row) -> str:
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    check_escapes(row, line, 0, len(line))
    return line


def _pair_line(record: Document | Query) -> str:
    text = record.full_text if isinstance(record, Document) else record.text
    return f"{record.id}\t{_one_line(text)}"


def _marco_line(document: Document) -> str:
    url = _one_line(str(document.metadata.get("url", "")))
    return f"{document.id}\t{url}\t{_one_line(document.title)}\t{_one_line(document.text)}"


def _one_line(text: str) -> str:
    if "\0" in text:
        raise Flaw("the text holds a NUL character")
    return _BREAKS.sub(" ", text)


def _judgements(qrels: Qrels) -> Iterator[tuple[str, str, int]]:
    for query, judged in qrels.items():
        _check_id(query, "query id")
        for document, grade in judged.items():
            _check_id(document, "document id")
            yield query, document, _whole(grade)


def _whole(grade: SupportsIndex) -> int:
    try:
        value = operator.index(grade)
    except TypeError:
        raise DataError(f"the relevance {grade!r} is not a whole number", "grades are 0, 1, 2, …") from None
    if abs(value) > MAX_GRADE:
        raise DataError(f"the relevance {grade} is too large", f"grades go up to {MAX_GRADE}")
    return value


def _run_lines(query: str, hits: Iterable[Hit], tag: str) -> Iterator[str]:
    _check_id(query, "query id")
    for rank, hit in enumerate(hits, start=1):
        _check_id(hit.id, "document id")
        if not math.isfinite(hit.score):
            raise DataError(f"the score of {hit.id} for query {query} is {hit.score}", "give finite scores")
        yield _columns(query, "Q0", hit.id, rank, repr(float(hit.score)), tag)


def _columns(*values: object) -> str:
    """Columns joined by spaces, as the tools of the field expect, or by tabs if an id holds white space."""
    words = [str(value) for value in values]
    return ("\t" if any(word.split() != [word] for word in words) else " ").join(words)
