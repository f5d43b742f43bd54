"""Push and pull by the hub's own client, against a stand-in that speaks its protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import triever
from tests.artifact_fuzz import read_manifest, sign, unpacked
from tests.golden import make_artifacts as golden
from tests.marks import quick
from tests.retrievers.contract import QUERIES, dataset
from tests.retrievers.test_adapters import alike, dense
from tests.retrievers.test_adapters import home as home  # a fixture
from tests.sharing.hub_server import READER, WRITER, HubServer
from tests.warm import ROOT, Begun
from triever import ArtifactError, Busy, Document, ServerError, UsageError, cli, pull, push
from triever.artifact import MANIFEST
from triever.files import locked
from triever.sharing.card import MARK

NAME = "someone/tea"


def content(folder: Path) -> dict[str, bytes]:
    """The files of an artifact, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def hits(folder: Path) -> list[list[tuple[str, float]]]:
    return [[(hit.id, hit.score) for hit in found] for found in triever.load(folder).search_many(QUERIES, 5)]


def changed(saved: Path, folder: Path) -> Path:
    """A copy with one document more."""
    shutil.copytree(saved, folder)
    with triever.edit(folder) as retriever:
        retriever.add([Document("mate", "Mate is brewed from leaves.")])
    return folder


def noted(saved: Path, folder: Path) -> Path:
    """A copy with another root, which changes its card and its manifest, and no other file."""
    shutil.copytree(saved, folder)
    with triever.edit(folder) as retriever:
        retriever.keep_root("/handbook")
    return folder


# --- There and back ------------------------------------------------------------------------------------------


def test_what_was_pulled_answers_as_what_was_pushed(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    pushed = push(saved, NAME)
    done = pull(NAME, tmp_path / "deep" / "other")
    assert content(done.folder) == content(saved)
    assert hits(done.folder) == hits(saved)
    assert done.commit == pushed.commit
    assert (done.kind, done.files, done.bytes) == ("bm25", pushed.files, pushed.bytes)
    assert done.files == done.fetched + 1 == len(content(saved))
    for path in done.folder.iterdir():
        assert path.is_file()
        assert not path.is_symlink()
    assert [path.name for path in done.folder.parent.iterdir()] == ["other"], "nothing is left beside it"


def test_only_the_files_of_the_artifact_are_pushed(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(saved, model)
    (model / "notes.txt").write_text("not for others")
    (model / "documents-0123456789abcdef.parquet").write_bytes(b"of a state that is gone")
    push(model, NAME)
    files = hub.files(NAME)
    assert files.keys() == {*content(saved), "README.md", ".gitattributes"}
    assert {name: files[name] for name in content(saved)} == content(saved)


def test_the_same_artifact_uploads_nothing(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    first = push(saved, NAME)
    asked, uploaded = len(hub.asked), len(hub.uploaded)
    second = push(saved, NAME)
    assert (second.commit, second.uploaded) == (first.commit, 0)
    assert (len(hub.asked), len(hub.uploaded)) == (asked + 1, uploaded), "one look, and no more"
    assert first.uploaded == uploaded == len(content(saved)) + 1


def test_a_changed_artifact_uploads_what_changed_and_takes_its_place(
    hub: HubServer, saved: Path, tmp_path: Path
) -> None:
    push(saved, NAME)
    model = noted(saved, tmp_path / "model")
    same = content(saved).keys() & content(model).keys() - {MANIFEST}
    assert same, "some files stay as they are"
    uploaded = len(hub.uploaded)
    done = push(model, NAME)
    assert done.uploaded == len(hub.uploaded) - uploaded == len(content(model)) - len(same) + 1
    assert hub.files(NAME).keys() == {*content(model), "README.md", ".gitattributes"}, "what it replaced is gone"


def test_a_pull_can_replace_and_fetches_only_what_is_new(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    out = pull(NAME, tmp_path / "out").folder
    model = noted(saved, tmp_path / "model")
    push(model, NAME)
    reader = triever.load(out)
    with pytest.raises(ArtifactError, match="out already exists; replace it with --replace, or name another folder"):
        pull(NAME, out)
    assert content(out) == content(saved)
    hub.served.clear()
    done = pull(NAME, out, replace=True)
    assert content(out) == content(model)
    assert hub.served.keys() == {*content(model)} - {*content(saved)} | {MANIFEST}
    assert done.fetched == 1
    assert triever.load(out).root == "/handbook"
    assert len(reader.search("tea")), "who had it open goes on"
    assert not pull(NAME, out, replace=True).fetched
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["model", "nobody", "out"]
        or not (tmp_path / ".out.part").exists()
    )


@pytest.mark.long
def test_branches_and_commits(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    first = push(saved, NAME)
    model = changed(saved, tmp_path / "model")
    second = push(model, NAME, revision="more/mate")
    assert content(pull(NAME, tmp_path / "main").folder) == content(saved)
    assert content(pull(NAME, tmp_path / "branch", revision="more/mate").folder) == content(model)
    assert content(pull(NAME, tmp_path / "commit", revision=second.commit).folder) == content(model)
    assert pull(NAME, tmp_path / "first", revision=first.commit).commit == first.commit
    push(saved, "someone/fresh", revision="only")
    assert content(pull("someone/fresh", tmp_path / "only", revision="only").folder) == content(saved)


@pytest.mark.long
def test_an_artifact_travels_without_its_backbone(
    hub: HubServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dense(home).fit(dataset())
    model.save(tmp_path / "model")
    backbone = (home / "tiny-bert" / "model.safetensors").stat().st_size
    done = push(tmp_path / "model", NAME)
    sent = sum(map(len, hub.files(NAME).values()))
    assert sent < backbone, "the weights of the backbone are not among it"
    out = pull(NAME, tmp_path / "out").folder
    assert done.bytes == sum(map(len, content(out).values())) - len(content(out)[MANIFEST])
    with pytest.raises(ArtifactError, match="tiny-bert"):
        triever.load(out)
    monkeypatch.setenv("TRIEVER_WEIGHTS", str(home))
    assert alike(model, triever.load(out))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(json.loads(golden.EXPECTED.read_text(encoding="utf-8"))))
def test_every_kind_travels(hub: HubServer, tmp_path: Path, name: str) -> None:
    unpacked(name, tmp_path / "model")
    push(tmp_path / "model", NAME)
    assert content(pull(NAME, tmp_path / "out").folder) == content(tmp_path / "model")
    packed = triever.pack(tmp_path / "out", tmp_path / "m.zip")
    assert content(triever.unpack(packed, tmp_path / "again")) == content(tmp_path / "model")


# --- The card ------------------------------------------------------------------------------------------------


def test_the_card_is_the_readme(hub: HubServer, saved: Path) -> None:
    push(saved, NAME)
    text = hub.files(NAME)["README.md"].decode()
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert head
    assert yaml.safe_load(head[1]) == {
        "library_name": "triever",
        "tags": ["triever", "information-retrieval", "bm25"],
    }
    assert triever.load(saved).card in text
    assert f"triever pull {NAME} --out tea" in text
    assert hub.count("POST", "/api/validate-yaml") == 1


def test_a_backbone_of_the_hub_is_named_in_it(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "model")
    raw = read_manifest(tmp_path / "model")
    raw["state"]["made_from"]["model weights"] = "hub some/model at 5f3a (mit)"
    sign(tmp_path / "model", raw)
    push(tmp_path / "model", NAME)
    head = hub.files(NAME)["README.md"].decode().split("---")[1]
    assert yaml.safe_load(head)["base_model"] == ["some/model"]


@pytest.mark.parametrize("own", quick(True, of=[True, False]))
def test_a_card_that_somebody_has_written_is_kept(hub: HubServer, saved: Path, tmp_path: Path, own: bool) -> None:
    push(saved, NAME)
    files = hub.files(NAME)
    files["README.md"] = b"---\nlicense: mit\n---\n# Tea\n" + (b"" if own else MARK.encode())
    hub.put(NAME, files)
    done = push(changed(saved, tmp_path / "model"), NAME)
    assert done.card_kept == own
    assert (hub.files(NAME)["README.md"] == files["README.md"]) == own


# --- Who may read, and what is refused -----------------------------------------------------------------------


def test_a_private_repository(hub: HubServer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push(saved, NAME)
    assert hub.repositories[NAME].private
    push(saved, NAME)
    push(saved, "someone/open", public=True)
    assert not hub.repositories["someone/open"].private
    with pytest.raises(UsageError, match=r"everybody can read someone/open, .* if they may, push with --public"):
        push(saved, "someone/open")
    monkeypatch.setenv("HF_TOKEN", READER)
    assert hits(pull(NAME, tmp_path / "out").folder) == hits(saved)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=r"has no repository someone/tea that you may see; check the name; .*HF_TOKEN"):
        pull(NAME, tmp_path / "none")


@pytest.mark.parametrize(
    ("token", "repository", "sentence"),
    [
        (None, "someone/new", r"does not know who you are; set HF_TOKEN to a token that may write to it"),
        (None, NAME, r"does not know who you are; set HF_TOKEN to a token that may write to it"),
        (READER, "someone/new", r"you may not write to someone/new; set HF_TOKEN to a token that may write"),
        (READER, NAME, r"you may not write to someone/tea; set HF_TOKEN to a token that may write"),
        (WRITER, "other/new", r"you may not write to other/new; set HF_TOKEN to a token that may write"),
    ],
)
def test_who_may_not_push(
    hub: HubServer,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None,
    repository: str,
    sentence: str,
) -> None:
    hub.put(NAME, {".gitattributes": b""})
    monkeypatch.setenv("HF_TOKEN", token) if token else monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=sentence):
        push(saved, repository)
    assert hub.repositories.keys() == {NAME}
    assert not hub.uploaded


@pytest.mark.parametrize(
    ("status", "headers", "kind", "sentence"),
    [
        (429, {"Retry-After": "77"}, ServerError, r"takes no more requests from you for now \(77 seconds\); run the"),
        (429, {"ratelimit": '"api";r=0;t=55'}, ServerError, r"for now \(55 seconds\); run the same again later"),
        (503, {}, ServerError, r"answers 503: told to answer 503; run the same again later: what has arrived is kept"),
        (403, {}, UsageError, r"you may not read someone/tea; set HF_TOKEN to a token that may read it"),
        (
            403,
            {"X-Error-Code": "GatedRepo"},
            UsageError,
            r"for those whom its owner has let in; ask for access at",
        ),
        (401, {}, UsageError, r"does not know who you are; set HF_TOKEN to a token that may read it"),
    ],
)
def test_a_hub_that_does_not_give_it(
    hub: HubServer, tmp_path: Path, status: int, headers: dict[str, str], kind: type[Exception], sentence: str
) -> None:
    hub.status, hub.headers = {"/api/models": status}, headers
    with pytest.raises(kind, match=sentence):
        pull(NAME, tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_what_is_not_there(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    with pytest.raises(UsageError, match="someone/tea has no revision v2; name a branch, a tag or a commit"):
        pull(NAME, tmp_path / "out", revision="v2")
    with pytest.raises(UsageError, match="has no repository someone/none that you may see; check the name"):
        pull("someone/none", tmp_path / "out")
    for name in ("tea", "a/b/c", "https://huggingface.co/a/b", "../b", "a/..", ""):
        with pytest.raises(UsageError, match="no name of a repository; name it as OWNER/NAME"):
            pull(name, tmp_path / "out")


def test_a_hub_that_is_not_there(hub: HubServer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = "http://127.0.0.1:9"
    for ask in (lambda: pull(NAME, tmp_path / "out", endpoint=closed), lambda: push(saved, NAME, endpoint=closed)):
        with pytest.raises(ServerError, match=r"http://127.0.0.1:9 cannot be reached: .*refused; check the network"):
            ask()
    with pytest.raises(UsageError, match=r"'huggingface.co' is no address of a hub; for example: https://hugg"):
        pull(NAME, tmp_path / "out", endpoint="huggingface.co")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"HF_HUB_OFFLINE forbids to ask http://127.0.0.1:[0-9]+; unset it"):
        pull(NAME, tmp_path / "out")


def test_a_server_that_is_no_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sharing.hub_server._Handler._commit_of", lambda *_: "0" * 40)
    monkeypatch.setattr("tests.sharing.hub_server._Handler._repository", lambda self, _name: self._json(["hello"]))
    with pytest.raises(ServerError, match=r"does not answer as a Hugging Face hub does: .*; check --endpoint"):
        pull(NAME, tmp_path / "out")


# --- What is no artifact -------------------------------------------------------------------------------------


def test_a_repository_of_something_else(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    hub.put(NAME, {"config.json": b"{}", "model.safetensors": b"weights", "README.md": b"# Model"})
    with pytest.raises(ArtifactError, match=r"someone/tea is not a Triever artifact: it has no manifest.json; check"):
        pull(NAME, tmp_path / "out")
    with pytest.raises(UsageError, match=r"holds other files \(config.json\) and is not a Triever artifact; push to a"):
        push(saved, NAME)
    hub.put(NAME, {"manifest.json": b'{"name": "an app"}'})
    with pytest.raises(ArtifactError, match=r"someone/tea/manifest.json was not written by Triever"):
        pull(NAME, tmp_path / "out")
    with pytest.raises(UsageError, match=r"holds other files \(manifest.json\) and is not a Triever artifact; push to"):
        push(saved, NAME)
    assert not hub.uploaded
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def edited(saved: Path, **values: Any) -> dict[str, bytes]:
    """The files of an artifact with other values in its manifest, and the right digest."""
    from triever.artifact import digest_of

    raw = {**read_manifest(saved), **values}
    raw["digest"] = digest_of(raw)
    return {**content(saved), MANIFEST: json.dumps(raw).encode()}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"version": 99},
            r"tea/manifest.json has format version 99, but .*; run: pip install --upgrade triever",
        ),
        (
            {"files": {"x": {"file": "../x-0123456789abcdef.npy", "sha256": "0123456789abcdef", "bytes": 1}}},
            r"names the file '../x-0123456789abcdef.npy', which Triever never writes; do not use",
        ),
        (
            {"files": {"x": {"file": "x-0123456789abcdef.npy", "sha256": "0123456789abcdef", "bytes": 1}}},
            r"someone/tea lacks x-0123456789abcdef.npy; ask its owner to push it again",
        ),
    ],
)
def test_manifests_of_strangers(
    hub: HubServer, saved: Path, tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    hub.put(NAME, edited(saved, **values))
    with pytest.raises(ArtifactError, match=sentence):
        pull(NAME, tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name or path.suffix == ".npy"]


@pytest.mark.parametrize("ending", quick("npy", of=["npy", "md"]))  # stored apart, and among small files
def test_a_file_that_was_damaged_on_the_hub(hub: HubServer, saved: Path, tmp_path: Path, ending: str) -> None:
    push(saved, NAME)
    name = sorted(name for name in content(saved) if name.endswith(ending))[-1]
    right = content(saved)[name]
    hub.change(NAME, name, right[:-1] + bytes([right[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=rf"someone/tea/{name} was changed after it was saved"):
        pull(NAME, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    hub.change(NAME, name, right[:-1])
    with pytest.raises(ArtifactError, match=rf"someone/tea/{name} is not what was pushed; ask its owner"):
        pull(NAME, tmp_path / "out")
    hub.change(NAME, name, right)
    before = dict(hub.served)
    pull(NAME, tmp_path / "out")
    assert content(tmp_path / "out") == content(saved)
    again = {served for served in before if hub.served[served] > before[served]}
    assert again == {name, MANIFEST}, "what was right had been kept"


def test_an_artifact_that_is_damaged_here_is_not_pushed(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "model")
    name = next(name for name in content(saved) if name.endswith("npy"))
    (tmp_path / "model" / name).write_bytes(content(saved)[name][:-1] + b"x")
    with pytest.raises(ArtifactError, match=f"{name} was changed after it was saved"):
        push(tmp_path / "model", NAME)
    assert not hub.asked


# --- Interruptions -------------------------------------------------------------------------------------------

PULLING = """
import sys
from huggingface_hub import constants
constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_XET = False, True
import triever
triever.pull("someone/tea", sys.argv[1], endpoint=sys.argv[2], replace=True)
"""


@pytest.mark.parametrize("replaces", quick(of=[False, True]))
def test_a_pull_that_is_killed_goes_on(hub: HubServer, saved: Path, tmp_path: Path, replaces: bool) -> None:
    model = changed(saved, tmp_path / "model")
    push(model, NAME)
    out = tmp_path / "out"
    if replaces:
        shutil.copytree(saved, out)
    names = [entry["file"] for entry in read_manifest(model)["files"].values()]
    wanted = [name for name in names if not (replaces and name in content(saved))]
    hub.hold = {wanted[-1]: threading.Event()}
    process = Begun([PULLING, out, hub.address], ROOT, code=True)
    assert hub.held.wait(30)
    process.kill()
    process.wait()
    hub.hold.pop(wanted[-1]).set()
    assert content(out) == content(saved) if replaces else not out.exists()
    hub.served.clear()
    done = pull(NAME, out, replace=replaces)
    assert hub.served.keys() == {wanted[-1], MANIFEST}
    assert done.fetched == 1
    assert content(out) == content(model)
    assert not (tmp_path / ".out.part").exists()


def test_a_connection_that_is_cut_goes_on_where_it_was(
    hub: HubServer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(saved, NAME)
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: None))
    name = next(name for name in content(saved) if name.startswith("documents_letters-"))
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100)  # what it has had of a piece is lost
    hub.cut[name] = 1000
    pull(NAME, tmp_path / "out")
    assert content(tmp_path / "out") == content(saved)
    assert hub.served[name] == len(content(saved)[name]), "no byte twice"
    assert hub.count("GET", f"/{name}") == 2


@pytest.mark.long
def test_one_pull_at_a_time(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    (tmp_path / ".out.part").mkdir()
    with locked(tmp_path / ".out.part" / ".lock"), pytest.raises(Busy, match="being written to by another process"):
        pull(NAME, tmp_path / "out")
    pull(NAME, tmp_path / "out")


def test_folders_that_are_not_ours_stay_as_they_are(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    asked = len(hub.asked)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ArtifactError, match=r"mine holds other files \(letter.txt\) and is not a Triever artifact"):
        pull(NAME, tmp_path / "mine", replace=True)
    assert len(hub.asked) == asked, "nobody waits for the network to hear that"
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "letter.txt").write_text("dear")
    with pytest.raises(ArtifactError, match=r".out.part stands in the way, and is not Triever's; rename it"):
        pull(NAME, tmp_path / "out")
    assert (tmp_path / ".out.part" / "letter.txt").read_text() == "dear"


@pytest.mark.long
def test_somebody_else_pushes_meanwhile(
    hub: HubServer, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(saved, NAME)
    from triever.sharing.hub import Hub

    commit = Hub.commit

    def late(self: Hub, *words: Any) -> str:
        hub.put(NAME, {**hub.files(NAME), "LICENSE": b"mit"})
        return commit(self, *words)

    monkeypatch.setattr(Hub, "commit", late)
    with pytest.raises(ServerError, match="somebody else has just changed someone/tea; run the same again"):
        push(changed(saved, tmp_path / "model"), NAME)


# --- The commands --------------------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return int(stop.value.code or 0), *capsys.readouterr()


@pytest.mark.long
def test_the_commands(hub: HubServer, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "push", saved, NAME)
    assert code == 0
    assert re.search(r"/someone/tea has \S+ at commit [0-9a-f]{40}: 11 files, [\d,]+ bytes; 12 files were new", out)
    assert "nothing was new" in said(capsys, "push", saved, NAME)[1]
    code, out, _ = said(capsys, "pull", NAME, "--out", tmp_path / "out")
    assert code == 0
    told = rf"wrote {tmp_path}/out: bm25, 11 files, [\d,]+ bytes, 10 were fetched; commit [0-9a-f]{{40}}\n"
    assert re.match(told, out)
    code, out, _ = said(capsys, "pull", NAME, "--out", tmp_path / "out", "--replace", "--json")
    assert json.loads(out)["fetched"] == 0
    code, out, problem = said(capsys, "pull", "someone/none", "--out", tmp_path / "none")
    assert (code, out) == (2, "")
    assert len(problem.splitlines()) == 1
    files = hub.files(NAME)
    hub.put(NAME, {**files, "README.md": b"mine"})
    code, out, _ = said(capsys, "push", saved, NAME, "--json")
    assert json.loads(out)["card_kept"]


@pytest.mark.long
def test_the_real_program_asks_the_hub_and_nobody_else(hub: HubServer, saved: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment = {**kept, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    for words in (["push", saved, NAME], ["pull", NAME, "--out", tmp_path / "out"]):
        command = [sys.executable, "-m", "triever.cli", *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, "neither bars nor warnings of the client"
    assert content(tmp_path / "out") == content(saved)
    assert not [
        path for _, path in hub.asked if not re.search(r"someone/tea|/repos/create|/validate|/stor|/verify", path)
    ]
