"""Names of splits: from the names of files, and several joined in one text."""

from __future__ import annotations

import re
from pathlib import Path

ALL = "all"
"""The split of a file whose name has only a role."""

AND = "+"
"""The sign that joins splits."""

_ENDINGS = re.compile(r"(\.(gz|zst|zstd|tsv|txt|json|jsonl|jsonlines|parquet|trec|csv))+$", re.IGNORECASE)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_VERSION = re.compile(r"[-_.]v\d+(\.\d+)*$")
_ROLES = re.compile(r"^(qrels?|queries|query|questions|topics)([-_.]|$)|[-_.](qrels?|queries|questions|topics)$")


def named_splits(split: str) -> list[str]:
    """The splits that a text names, each once.

    >>> named_splits("train.nq+train.entityq"), named_splits("train")
    (['train.nq', 'train.entityq'], ['train'])
    """
    return list(dict.fromkeys(name.strip() for name in split.split(AND)))


def split_name(path: str | Path) -> str:
    """The part of a file's name that is neither ending, role, shard nor version.

    >>> [split_name(name) for name in ("qrels/dev.nq.tsv", "qrels.dev.tsv.gz", "queries.jsonl")]
    ['dev.nq', 'dev', 'all']
    >>> [split_name(name) for name in ("train-v1.1.json", "test-00000-of-00001.parquet")]
    ['train', 'test']
    """
    name = without_endings(path)
    for noise in (_SHARD, _VERSION, _ROLES):
        name = noise.sub("", name)
    return name or ALL


def without_endings(path: str | Path) -> str:
    """A file's name without the endings of formats and compression.

    >>> without_endings("data/corpus.jsonl.gz")
    'corpus'
    """
    return _ENDINGS.sub("", Path(path).name)
