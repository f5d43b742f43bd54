"""One suite for every scheme: docids are valid, repeatable, readable, saved; new documents find a place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.docids.test_quantize import clustered
from triever import Document, UsageError, artifact, config
from triever.docids.schemes import SCHEMES, Atomic, Cluster, Codebook, Naive, Scheme, Semantic, Title
from triever.docids.trie import Trie

COUNT = 400
DOCUMENTS = [Document(f"doc-{number:03}", "text", f"Title {number % 7}") for number in range(COUNT)]
VECTORS = clustered(COUNT, 25)
MAKE = {
    "atomic": Atomic,
    "naive": Naive,
    "title": lambda: Title(vocabulary=200),
    "semantic": lambda: Semantic(branch=4, leaf=10),
    "2d semantic": lambda: Semantic(branch=4, leaf=10, positions=True),
    "codebook": lambda: Codebook(levels=3, bits=3),
    "cluster": lambda: Cluster(clusters=30, branch=4),
}


def fitted(name: str) -> tuple[Scheme, list[tuple[int, ...]]]:
    scheme = MAKE[name]()
    return scheme, scheme.fit(DOCUMENTS, VECTORS)


@pytest.mark.parametrize("name", MAKE)
def test_docids_are_valid_and_make_a_trie(name: str) -> None:
    scheme, docids = fitted(name)
    assert len(docids) == COUNT
    assert all(0 <= symbol < scheme.width for docid in docids for symbol in docid)
    trie = Trie.of(zip(docids, range(COUNT), strict=True))  # refuses docids that begin others
    assert len(trie) == COUNT


@pytest.mark.parametrize("name", MAKE)
def test_the_same_documents_get_the_same_docids(name: str) -> None:
    assert fitted(name)[1] == fitted(name)[1]


@pytest.mark.parametrize("name", MAKE)
def test_a_new_document_finds_a_place_beside_the_old_ones(name: str) -> None:
    scheme, docids = fitted(name)
    new = scheme.place(Document("doc-999", "text"), VECTORS[7] + 0.01)
    assert all(0 <= symbol < scheme.width for symbol in new)
    trie = Trie.of(zip(docids, range(COUNT), strict=True)).with_added([(new, COUNT)])
    assert len(trie) == COUNT + 1
    if scheme.needs_vectors:
        assert new[0] == docids[7][0], "near documents share the beginnings of their docids"


@pytest.mark.parametrize("name", MAKE)
def test_a_docid_can_be_read_and_written(name: str) -> None:
    scheme, docids = fitted(name)
    assert all(scheme.parse(scheme.readable(docid)) == docid for docid in docids[:50])


@pytest.mark.parametrize("name", MAKE)
def test_saved_and_loaded_it_places_as_before(name: str, tmp_path: Path) -> None:
    scheme, _ = fitted(name)
    with artifact.writing(tmp_path / "s") as writer:
        state = scheme.write(writer)
        writer.commit(scheme.kind, config.to_dict(scheme), state, "")
    with artifact.read(tmp_path / "s") as snapshot:
        again = config.build(SCHEMES[snapshot.manifest.kind], snapshot.manifest.options)
        again.read(snapshot, dict(snapshot.manifest.state))
    assert again.width == scheme.width
    for number in (3, 50, 51):
        document = Document(f"doc-{number}9", "text")
        assert again.place(document, VECTORS[number]) == scheme.place(document, VECTORS[number])


def test_semantic_docids_are_unique_and_their_prefixes_are_clusters() -> None:
    scheme, docids = fitted("semantic")
    assert len(set(docids)) == COUNT
    spread = VECTORS.var(0).sum()
    groups: dict[int, list[int]] = {}
    for number, docid in enumerate(docids):
        groups.setdefault(docid[0], []).append(number)
    inside = sum(VECTORS[group].var(0, correction=0).sum() * len(group) for group in groups.values()) / COUNT
    assert inside < 0.9 * spread
    assert scheme.width == 10


def test_position_aware_symbols_say_where_they_stand() -> None:
    plain, flat = fitted("semantic")[1], fitted("2d semantic")[1]
    assert flat == [tuple(10 * depth + symbol for depth, symbol in enumerate(docid)) for docid in plain]


def test_codebook_docids_are_unique_and_collisions_are_counted() -> None:
    scheme, docids = fitted("codebook")
    assert isinstance(scheme, Codebook)
    codes = [docid[:-1] for docid in docids]
    assert scheme.collision_rate == sum(codes.count(code) > 1 for code in codes) / COUNT
    crowded = max(codes.count(code) for code in codes)
    assert crowded > scheme.width or len(set(docids)) == COUNT


def test_titles_may_be_equal_or_begin_others() -> None:
    documents = [Document("a", "", "New York"), Document("b", "", "New York City"), Document("c", "", "New York")]
    scheme = Title(vocabulary=100)
    docids = scheme.fit(documents)
    assert docids[0] == docids[2] != docids[1]
    trie = Trie.of(zip(docids, range(3), strict=True))
    assert trie.info()["shared docids"] == 1
    assert scheme.readable(docids[1]).startswith("new")


def test_the_number_of_clusters_does_not_grow_with_the_corpus() -> None:
    scheme, docids = fitted("cluster")
    assert len(set(docids)) <= 30
    assert max(map(len, docids)) <= math.ceil(math.log(30, 4)) + 2
    again = MAKE["cluster"]().fit(DOCUMENTS * 2, torch.cat([VECTORS, VECTORS]))
    assert len(set(again)) <= 30
    assert scheme.width == 4


def test_documents_in_a_full_place_share_a_docid() -> None:
    docids = Semantic(branch=2, leaf=3).fit(DOCUMENTS[:8], torch.ones(8, 4))
    assert len(set(docids)) < 8
    assert len(Trie.of(zip(docids, range(8), strict=True))) == 8


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="semantic docids need a vector for each of 400 documents, and have none"):
        Semantic().fit(DOCUMENTS)
    with pytest.raises(UsageError, match="the character '#', which no document had"):
        fitted("naive")[0].place(Document("doc#1", ""))
    for bad in (lambda: Semantic(branch=1), lambda: Codebook(bits=20), lambda: Cluster(clusters=0)):
        with pytest.raises(UsageError):
            bad()
