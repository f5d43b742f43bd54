"""One suite for every scheme: docids are valid, repeatable, readable, saved; new documents find a place."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.docids.test_quantize import clustered, noisy
from tests.marks import quick
from triever import Document, UsageError, artifact, config
from triever.data import byte_letters
from triever.data.byte_letters import BLANKS, BYTES, LETTERS
from triever.docids import quantize
from triever.docids.code_use import code_use
from triever.docids.schemes import (
    SCHEMES,
    Atomic,
    Cluster,
    Codebook,
    Naive,
    Numbering,
    Scheme,
    Semantic,
    Title,
    learn_pieces,
)
from triever.docids.trie import Trie
from triever.index.top import shared

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
    "plain codebook": lambda: Codebook(levels=3, bits=3, balanced=False),
    "codebook without positions": lambda: Codebook(levels=3, bits=3, positions=False),
    "cluster": lambda: Cluster(clusters=30, branch=4),
    "clusters of one symbol": lambda: Cluster(clusters=30),
    "united ones of one symbol": lambda: Cluster(clusters=30, method="agglomerative"),
    "balanced clusters": lambda: Cluster(clusters=30, branch=4, method="balanced"),
    "united clusters": lambda: Cluster(clusters=30, branch=4, method="agglomerative"),
    "clusters by density": lambda: Cluster(clusters=30, branch=4, method="density"),
}


S = TypeVar("S", bound=Scheme)


def fitted(name: str) -> tuple[Scheme, list[tuple[int, ...]]]:
    scheme = MAKE[name]()
    return scheme, scheme.fit(DOCUMENTS, VECTORS)


def reopened(scheme: S, folder: Path) -> S:
    """Saved and loaded again."""
    with artifact.writing(folder) as writer:
        state = scheme.write(writer)
        writer.commit(scheme.kind, config.to_dict(scheme), state, "")
    with artifact.read(folder) as snapshot:
        again = config.build(SCHEMES[snapshot.manifest.kind], snapshot.manifest.options)
        again.read(snapshot, dict(snapshot.manifest.state))
    assert isinstance(again, type(scheme))
    return again


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
    again = reopened(scheme, tmp_path / "s")
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
    use = code_use(Trie.of(zip(docids, range(COUNT), strict=True)), scheme)
    assert use is not None
    assert use.shared == pytest.approx(sum(codes.count(code) > 1 for code in codes) / COUNT, abs=1e-4)
    crowded = max(codes.count(code) for code in codes)
    assert crowded > 2**scheme.bits or len(set(docids)) == COUNT


@pytest.mark.long
def test_codebooks_are_balanced_unless_that_is_declined() -> None:
    documents, vectors = [Document(str(number), "") for number in range(1000)], noisy()
    shares = {}
    for balanced in (False, True):
        scheme = Codebook(levels=4, bits=6) if balanced else Codebook(levels=4, bits=6, balanced=False)
        docids = scheme.fit(documents, vectors)
        colliding = [count for count in Counter(docid[:4] for docid in docids).values() if count > 1]
        shares[balanced] = max(Counter(docid[3] for docid in docids).values()) / 1000, sum(colliding) / 1000
        again = [scheme.place(document, vector) for document, vector in zip(documents, vectors, strict=True)]
        assert [docid[:4] for docid in again] == [docid[:4] for docid in docids], "equal vectors have equal codes"
    assert all(share > limit for share, limit in zip(shares[False], (0.5, 0.1), strict=True))
    assert all(share < limit for share, limit in zip(shares[True], (0.15, 0.05), strict=True))


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


@pytest.mark.parametrize("name", ["cluster", "balanced clusters", "united clusters", "clusters by density"])
def test_every_way_to_cluster_makes_as_many_clusters_as_asked_for(name: str, tmp_path: Path) -> None:
    scheme, docids = fitted(name)
    assert 25 <= len(set(docids)) <= 30
    again = reopened(scheme, tmp_path / "m")
    placed = [again.place(*one) for one in zip(DOCUMENTS, VECTORS, strict=True)]
    if name == "balanced clusters":
        assert max(Counter(docids).values()) <= math.ceil(COUNT / 30)
    else:
        assert placed == docids
    assert not again.others(VECTORS)


@pytest.mark.parametrize("method", ["kmeans", "balanced", "agglomerative", "density"])
def test_the_one_symbol_of_a_cluster_stands_for_its_centroids(method: str, tmp_path: Path) -> None:
    scheme = Cluster(clusters=30, method=method)  # ty: ignore[invalid-argument-type]
    docids = scheme.fit(DOCUMENTS, VECTORS)
    assert scheme.single
    assert {len(docid) for docid in docids} == {1}
    again = reopened(scheme, tmp_path)
    rows = again.rows()
    assert rows is not None
    assert again._centroids is not None
    assert len(rows) == again.width == 30
    for symbol in range(30):
        own = [centroid for centroid, code in zip(again._centroids, again._codes, strict=True) if code == (symbol,)]
        torch.testing.assert_close(rows[symbol], torch.stack(own).mean(0))
    assert Cluster(clusters=30, branch=4).rows() is None


@pytest.mark.parametrize(("clusters", "is_told"), [(COUNT - 1, False), (COUNT, True), (9000, True)])
def test_where_every_document_is_alone_it_is_told(
    clusters: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Cluster(clusters=clusters).fit(DOCUMENTS, VECTORS)
    said = f"docids.clusters = {clusters:,}, but there are only 400 documents: each becomes its own cluster"
    assert (said in caplog.text) == is_told


@pytest.mark.parametrize(
    ("vectors", "told"),
    [
        (torch.ones(60, 4), "only 60 documents: they make 1 cluster, since those whose vectors are equal share one"),
        (torch.eye(6).repeat(2, 1), "only 12 documents: they make 6 clusters, since those whose vectors are equal"),
    ],
)
@pytest.mark.parametrize("method", ["kmeans", "agglomerative", "density"])
def test_documents_with_equal_vectors_are_not_told_to_be_alone(
    method: str, vectors: torch.Tensor, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    scheme = Cluster(clusters=100, method=method)  # ty: ignore[invalid-argument-type]
    docids = scheme.fit([Document(str(row), "same") for row in range(len(vectors))], vectors)
    assert len({*docids}) == len(vectors.unique(dim=0))
    assert told in caplog.text


def test_a_document_at_a_boundary_is_in_several_clusters() -> None:
    plain = Cluster(clusters=30, branch=4)
    docids = plain.fit(DOCUMENTS, VECTORS)
    wide = Cluster(clusters=30, branch=4, margin=0.2)
    assert wide.fit(DOCUMENTS, VECTORS) == docids
    others = wide.others(VECTORS)
    assert plain._centroids is not None
    every = torch.cdist(VECTORS, plain._centroids)
    for row, (own, some) in enumerate(zip(docids, others, strict=True)):
        near = every[row].argsort()[:4]
        expected = [plain._codes[int(one)] for one in near if every[row, one] <= 1.2 * every[row].min()]
        assert some == expected
        assert own in some
    assert max(map(len, others)) > 1


CLUSTERED = [name for name in MAKE if MAKE[name]().needs_vectors]


@pytest.mark.parametrize("name", quick("semantic", "codebook", "balanced clusters", of=CLUSTERED))
def test_vectors_may_be_in_a_file_and_more_than_are_learned_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in {"ENOUGH": 50, "PER_CENTROID": 5, "AT_ONCE": 8, "CHUNK": 500, "BLOCK": 500}.items():
        monkeypatch.setattr(quantize, setting, value)
    np.save(tmp_path / "v.npy", VECTORS.numpy().astype("float16"))
    mapped = shared(np.load(tmp_path / "v.npy", mmap_mode="r"))
    scheme = MAKE[name]()
    docids = scheme.fit(DOCUMENTS, mapped)
    assert docids == MAKE[name]().fit(DOCUMENTS, mapped.clone(), "cpu")
    assert len(Trie.of(zip(docids, range(COUNT), strict=True))) == COUNT
    if name != "balanced clusters":
        own = [docid[: docid_length(scheme, docid)] for docid in docids]
        again = [scheme.place(*one) for one in zip(DOCUMENTS, mapped, strict=True)]
        assert [docid[: docid_length(scheme, docid)] for docid in again] == own


def docid_length(scheme: Scheme, docid: tuple[int, ...]) -> int:
    """Without the last symbol where that tells documents of one cluster apart."""
    return len(docid) - (scheme.kind != "cluster")


@pytest.mark.parametrize("name", CLUSTERED)
@pytest.mark.parametrize("count", [1, 2, 20])
def test_few_documents_or_equal_ones_are_clustered_too(name: str, count: int) -> None:
    for vectors in (VECTORS[:count], torch.ones(count, 4)):
        docids = MAKE[name]().fit(DOCUMENTS[:count], vectors)
        assert len(Trie.of(zip(docids, range(count), strict=True))) == count


@pytest.mark.parametrize("name", [*CLUSTERED, "atomic"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_vectors_that_are_not_finite_are_refused(name: str, bad: float) -> None:
    vectors = VECTORS.clone()
    vectors[7, 2] = bad
    with pytest.raises(UsageError, match="hold numbers that are not finite; correct the vectors"):
        MAKE[name]().fit(DOCUMENTS, vectors)
    scheme, _ = fitted(name)
    with pytest.raises(UsageError, match="not finite"):
        scheme.place(Document("new", ""), vectors[7])


@pytest.mark.parametrize("margin", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("clusters", [10, 30])
def test_balanced_clusters_stay_so_where_documents_are_in_several(clusters: int, margin: float) -> None:
    scheme = Cluster(clusters=clusters, branch=4, method="balanced", margin=margin)
    docids = scheme.fit(DOCUMENTS, VECTORS)
    others = scheme.others(VECTORS, docids)
    assert scheme._centroids is not None
    distance = {code: torch.cdist(VECTORS, scheme._centroids[at][None])[:, 0] for at, code in enumerate(scheme._codes)}
    asked: dict[tuple[int, ...], list[tuple[float, int]]] = {code: [] for code in scheme._codes}
    for row, own in enumerate(docids):
        near = sorted(distance, key=lambda code: float(distance[code][row]))[:4]
        reach = (1 + margin) * float(distance[own][row])
        wanted = [code for code in near if code != own and float(distance[code][row]) <= reach][:3]
        for code in wanted:
            asked[code].append((float(distance[code][row]), row))
    held, share = Counter(docids), math.ceil((COUNT + sum(map(len, asked.values()))) / clusters)
    for code, who in asked.items():
        expected = {row for _, row in sorted(who)[: share - held[code]]}
        assert {row for row, some in enumerate(others) if code in some} == expected
    members = Counter(code for own, some in zip(docids, others, strict=True) for code in {own, *some})
    assert max(members.values()) <= share
    assert any(others)
    assert scheme.others(VECTORS[:1]) == Cluster.others(scheme, VECTORS[:1], None), "new ones go where they are near"


def test_documents_in_a_full_place_share_a_docid() -> None:
    docids = Semantic(branch=2, leaf=3).fit(DOCUMENTS[:8], torch.ones(8, 4))
    assert len(set(docids)) < 8
    assert len(Trie.of(zip(docids, range(8), strict=True))) == 8


NEW = Document("new", "text")


def test_a_new_atomic_symbol_names_those_of_the_nearest_fitted_documents(tmp_path: Path) -> None:
    scheme = Atomic(neighbours=3)
    scheme.fit(DOCUMENTS, VECTORS)
    assert scheme.untrained == {}
    vector = VECTORS[7] + 0.01
    expected = sorted(range(COUNT), key=lambda number: float((VECTORS[number] - vector).square().sum()))[:3]
    assert expected[0] == 7
    # The second would be nearest to the first, which has no row of its own to average.
    assert [scheme.place(NEW, vector), scheme.place(NEW, vector)] == [(COUNT,), (COUNT + 1,)]
    assert scheme.place(NEW) == (COUNT + 2,)
    assert scheme.untrained == {COUNT: expected, COUNT + 1: expected, COUNT + 2: []}
    again = reopened(scheme, tmp_path / "s")
    assert again.untrained == scheme.untrained
    assert again.place(NEW, vector) == (COUNT + 3,)
    assert again.untrained[COUNT + 3] == expected
    scheme.fit(DOCUMENTS[:2], VECTORS[:2])
    assert scheme.untrained == {}, "what is fitted anew is trained anew"


def test_an_atomic_symbol_without_neighbours_names_none(tmp_path: Path) -> None:
    unfitted, plain, empty, few = Atomic(), Atomic(), Atomic(), Atomic()
    assert unfitted.place(NEW, VECTORS[0]) == (0,)
    plain.fit(DOCUMENTS[:3])
    empty.fit([], VECTORS[:0])
    few.fit(DOCUMENTS[:3], VECTORS[:3])
    plain = reopened(plain, tmp_path / "plain")
    empty = reopened(empty, tmp_path / "empty")
    assert [scheme.place(NEW, VECTORS[0]) for scheme in (plain, empty, few)] == [(3,), (0,), (3,)]
    assert [scheme.untrained for scheme in (unfitted, plain, empty)] == [{0: []}, {3: []}, {0: []}]
    assert sorted(few.untrained[3]) == [0, 1, 2]


def test_what_the_caller_does_to_its_vectors_later_does_not_matter() -> None:
    scheme, vectors = Atomic(neighbours=1), VECTORS[:5].clone()
    scheme.fit(DOCUMENTS[:5], vectors)
    vectors.zero_()
    scheme.place(NEW, VECTORS[4])
    assert scheme.untrained == {5: [4]}


TITLES = [
    *("New York", "New York City", "New York", "Zürich (Stadt)", "東京", "a\\b_c", "Tokyo  Tower", "🙂 smile"),
    *("\u0301", "the", "the end", "t"),  # an accent alone is no piece of a word
]
TITLED = [Document(str(number), "", title) for number, title in enumerate(TITLES)]


def word_pieces() -> Tokenizer:
    tokenizer = learn_pieces(TITLES, 120)
    # As the files of many encoders have it: none of this may reach a docid.
    tokenizer.enable_padding(length=12)
    tokenizer.enable_truncation(2)
    tokenizer.add_special_tokens(["[CLS]"])
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A", None, [("[CLS]", 1)])
    return tokenizer


def byte_pieces(titles: Sequence[str] = TITLES, size: int = 280) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(titles, trainer)
    tokenizer.add_tokens(["  ", "\\"])  # runs of spaces are pieces of some code models
    return tokenizer


def spaced_pieces() -> Tokenizer:
    """Whole titles as pieces, spaces and all, with numbers that have gaps."""
    vocabulary = {title: 7 * number for number, title in enumerate(sorted(set(TITLES)))}
    return Tokenizer(models.WordLevel(vocabulary | {"?": 500}, unk_token="?"))


TOKENIZERS = {"word pieces": word_pieces, "bytes": byte_pieces, "spaces": spaced_pieces}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_titles_in_the_pieces_of_a_backbone(name: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]()
    (tmp_path / "backbone").mkdir()
    file = tmp_path / "backbone" / "tokenizer.json"
    tokenizer.save(str(file))
    scheme = Title(tokenizer=str(file.parent))
    docids = scheme.fit(TITLED)
    assert docids == Title(tokenizer=str(file)).fit(TITLED)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = [tokenizer.encode(title, add_special_tokens=False).ids for title in TITLES]
    assert docids == [(*each, scheme.width - 1) for each in ids]
    assert scheme.width == max(tokenizer.get_vocab().values()) + 2
    assert len(Trie.of(zip(docids, range(len(docids)), strict=True))) == len(TITLES)  # none begins another
    file.unlink()
    again = reopened(scheme, tmp_path / "s")
    assert (again.width, again.tokenizer) == (scheme.width, str(file.parent))
    assert [again.place(document) for document in TITLED] == docids
    assert [again.parse(again.readable(docid)) for docid in docids] == docids


def test_pieces_that_stand_for_bytes_are_shown_as_characters(tmp_path: Path) -> None:
    titles = ["札幌", "São Paulo", "\u0120 ain\\u0120 x", "a\\xe5 \u00e5", "Naïve café", "Москва", "🌍"]
    tokenizer = byte_pieces(titles[:2], size=320)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    scheme = Title(tokenizer=str(tmp_path))
    docids = scheme.fit([Document(str(row), "text", title) for row, title in enumerate(titles)])
    assert [scheme.readable(docid) for docid in docids[:2]] == ["Ġ札幌", "ĠSão ĠPaulo"]
    assert scheme.readable(docids[-1]).split() == ["Ġ", *(rf"\x{byte:02x}" for byte in "🌍".encode())]
    assert [scheme.parse(scheme.readable(docid)) for docid in docids] == docids
    assert [scheme.symbol(symbol) for symbol in docids[0]] == ["Ġ札幌", "end"]


@given(st.text(st.sampled_from([*BYTES, *"\\xu4120"]), min_size=1, max_size=12))
def test_what_is_shown_of_bytes_is_read_back(token: str) -> None:
    shown = byte_letters.exact(token)
    assert byte_letters.token_of(shown) == token


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_whole_characters_are_shown_as_they_are(text: str) -> None:
    token = "".join(LETTERS[byte] for byte in text.encode())
    assert byte_letters.readable(token) == text.replace(" ", "Ġ")
    if not {*BLANKS, "\\"} & {*text}:
        assert byte_letters.exact(token) == byte_letters.readable(token)


def test_the_symbols_of_a_tokenizer_without_gaps_are_its_tokens_and_a_stop(tmp_path: Path) -> None:
    tokenizer = byte_pieces()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    scheme = Title(tokenizer=str(tmp_path))
    docid = scheme.fit(TITLED)[1]
    assert scheme.width == tokenizer.get_vocab_size() + 1
    assert tokenizer.decode(list(docid[:-1])).strip() == "New York City"


@pytest.mark.parametrize("title", ["", "  ", "\u200b", "\u00a0\u3000", "\n\t", "\x00\x07", "\u202e", "\ufeff"])
def test_a_title_that_nobody_sees_is_none(title: str) -> None:
    scheme = Title(vocabulary=100)
    hidden, named = scheme.fit([Document("tea", "text", title), Document("coffee", "text", f"{title}tea")])
    assert hidden == named == scheme.place(Document("tea", "text", title))
    assert len(hidden) > 1


def test_a_title_of_nothing_is_the_stop_symbol_alone() -> None:
    scheme = Title(vocabulary=100)
    docids = scheme.fit(TITLED)
    assert docids[TITLES.index("\u0301")] == (scheme.width - 1,)
    assert [scheme.parse(scheme.readable(docid)) for docid in docids] == docids
    assert len(Trie.of(zip(docids, range(len(docids)), strict=True))) == len(TITLES)


def test_a_slip_in_the_word_for_a_backbone_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is no file bakbone; did you mean backbone\?"):
        Title(tokenizer="bakbone").fit(TITLED)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no file .*; name a tokenizer.json or a folder with one"),
        ("{", "is not a tokenizer: .*; name a tokenizer.json"),
        (json.dumps({"version": "1.0"}), "is not a tokenizer"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(UsageError, match=f"^tokenizer = '{path}': .*{problem}") as caught:
            Title(tokenizer=str(path)).fit(TITLED)
        assert "\n" not in str(caught.value)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="semantic docids need a vector for each of 400 documents, but there are none"):
        Semantic().fit(DOCUMENTS)
    with pytest.raises(UsageError, match="the character '#', which no document had"):
        fitted("naive")[0].place(Document("doc#1", ""))
    with pytest.raises(UsageError, match="'xyzzy' is not one of the word pieces"):
        fitted("title")[0].parse("title xyzzy")
    with pytest.raises(UsageError, match="the word pieces are not learned yet; call fit first"):
        Title().parse("")
    with pytest.raises(UsageError, match="atomic docids need a vector for each of 400 documents, but there are 3"):
        Atomic().fit(DOCUMENTS, VECTORS[:3])
    for bad in (
        *(lambda: Semantic(branch=1), lambda: Codebook(bits=20), lambda: Cluster(clusters=0)),
        *(lambda: Atomic(neighbours=0), lambda: Title(vocabulary=99)),
    ):
        with pytest.raises(UsageError):
            bad()


@pytest.mark.parametrize("name", ["semantic", "2d semantic", "codebook", "cluster"])
def test_mistakes_with_vectors_are_said(name: str) -> None:
    with pytest.raises(UsageError, match="not fitted; call fit first"):
        MAKE[name]().place(DOCUMENTS[0], VECTORS[0])
    with pytest.raises(UsageError, match="cannot be fitted without documents"):
        MAKE[name]().fit([], VECTORS[:0])
    scheme, _ = fitted(name)
    with pytest.raises(UsageError, match="has 3 numbers"):
        scheme.place(DOCUMENTS[0], torch.zeros(3))


def test_documents_of_one_beginning_are_numbered_and_share_numbers_once_it_is_full() -> None:
    held = Numbering()
    assert [held.next((3, 1), 2) for _ in range(3)] == [0, 1, 0]
    assert held.next((3, 2), 2) == 0
    again = Numbering.of_lists(json.loads(json.dumps(held.to_lists())))
    assert again == held
    assert again.next((3, 1), 2) == 1


def test_rows_of_clusters_have_length_one_where_vectors_do(tmp_path: Path) -> None:
    documents, vectors = [Document(str(one), "") for one in range(60)], clustered(60, 4, seed=3)
    for learned, unit in ((vectors, False), (torch.nn.functional.normalize(vectors, dim=1), True)):
        scheme = Cluster(clusters=6)
        numbers = torch.tensor([code for (code,) in scheme.fit(documents, learned)])
        means = torch.stack([learned[numbers == one].mean(0) for one in range(6)])
        rows = scheme.rows()
        assert rows is not None
        assert torch.equal(rows, reopened(scheme, tmp_path / str(unit)).rows())
        torch.testing.assert_close(
            rows, means / means.norm(dim=1, keepdim=True) if unit else means, atol=1e-4, rtol=1e-4
        )
