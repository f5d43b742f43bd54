"""Saved retrievers on the Hugging Face hub: `push` and `pull`, by the hub's own client.

A repository of the hub holds the files of one artifact, with its card as README.md. A push is one commit, and sends
only files that the repository lacks. A pull lays down ordinary files, each checked against the manifest. Nothing is
asked of the hub by any other part of Triever, unless `fetch=true` says so for a backbone.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from triever import artifact
from triever.arguments import as_path, brief, text
from triever.errors import ArtifactError, ServerError, TrieverError, UsageError
from triever.manifest import LARGEST_MANIFEST
from triever.progress import bar, is_shown, phase
from triever.sharing.card import MARK, readme
from triever.sharing.landing import landing
from triever.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo

README = "README.md"
BESIDE = re.compile(r"README\.md|\.git\w+|LICEN[CS]E(\.\w+)?", re.IGNORECASE)
"""Files of a repository that may stand beside an artifact: nobody else's model is in them."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
MAIN = "main"
PATIENCE = 30.0
"""Seconds after which a hub that says nothing is given up."""
LONGEST = 200
"""How many letters of the hub's own message are shown."""
AGAIN = "run the same again later: what has arrived is kept"


@dataclass(frozen=True)
class Pushed:
    """What a push has done."""

    repository: str
    revision: str
    commit: str
    url: str
    files: int
    bytes: int
    uploaded: int  # files that the repository lacked; none, and there is no new commit
    card_kept: bool = False  # README.md is somebody's own, and was left as it is


@dataclass(frozen=True)
class Pulled:
    """What a pull has done."""

    repository: str
    revision: str
    commit: str
    folder: Path
    kind: str
    files: int
    bytes: int
    fetched: int  # files that were not on this machine


def push(
    model: str | Path,
    repository: str,
    *,
    revision: str = MAIN,
    public: bool = False,
    endpoint: str | None = None,
) -> Pushed:
    """Upload a saved retriever to a repository of the Hugging Face hub: `push("models/handbook", "OWNER/NAME")`.

    A repository that does not exist is made, for you alone to read unless `public` is set. The documents of the
    retriever are in it. `revision` is the branch. The token is read from `HF_TOKEN`, or is the one that `hf auth login`
    has stored; `endpoint` is another hub, and otherwise `HF_ENDPOINT` counts.
    """
    model = as_path(model)
    hub = Hub(repository, revision, endpoint)
    with artifact.read(model) as snapshot, phase(f"pushing {model}"):
        snapshot.verify()
        card = readme(snapshot, hub.repository)
        state = hub.made(public=public)
        changes = _changes(snapshot, card, state)
        if artifact.MANIFEST in changes:
            _refuse_others(hub, state)
        card_kept = README in changes and README in state.files and not _is_ours(hub, state)
        if card_kept:
            del changes[README]
        gone = [name for name in state.files if artifact.is_content_name(name) and name not in _names(snapshot)]
        commit = hub.commit(changes, gone, state.commit) if changes or gone else state.commit
    manifest = snapshot.manifest
    files = len(manifest.files) + 1
    return Pushed(hub.repository, revision, commit, hub.url, files, manifest.bytes, len(changes), card_kept)


def pull(
    repository: str,
    out: str | Path,
    *,
    revision: str = MAIN,
    replace: bool = False,
    endpoint: str | None = None,
) -> Pulled:
    """Fetch a saved retriever from a repository of the Hugging Face hub into a folder that `load` opens.

    `revision` is a branch, a tag or a commit. After an interruption the same call goes on with the files that are
    missing. With `replace` a saved retriever that is there already is replaced, in one step. The token and the endpoint
    are those of `push`.
    """
    out = as_path(out)
    hub = Hub(repository, revision, endpoint)
    shown = Path(hub.repository)
    artifact.check_place(out, replace=replace)  # before anybody waits for the network
    state = hub.state()
    with landing(out, replace=replace, keep=True) as place, phase(f"pulling {hub.repository}"):
        content = hub.manifest(state, place.scratch)
        manifest = artifact.parse_manifest(content, shown)
        _check_listed(manifest, state, shown)
        missing = [entry for entry in manifest.files.values() if not place.has(entry)]
        with bar(f"pulling {hub.repository}", sum(entry.bytes for entry in missing), unit="bytes") as count:
            arrived = 0
            for entry in missing:
                path = hub.fetch(entry.file, state.commit, place.scratch, _counter(count, arrived))
                place.take(path, entry, shown)
                arrived += entry.bytes
        place.land(content, manifest)
    files, size = len(manifest.files) + 1, manifest.bytes
    return Pulled(hub.repository, revision, state.commit, out, manifest.kind, files, size, len(missing))


@dataclass(frozen=True)
class HubFile:
    """What the hub says of a file: its size, and its SHA-256 or else what git calls it."""

    size: int
    sha256: str
    git: str

    def is_same(self, sha256: str, content: Callable[[], bytes]) -> bool:
        """Whether it has this content, which is read only if it must be."""
        from huggingface_hub.utils.sha import git_hash

        return self.sha256 == sha256 if self.sha256 else self.git == git_hash(content())


@dataclass(frozen=True)
class HubState:
    """A repository at one commit."""

    commit: str
    private: bool
    files: dict[str, HubFile]

    @classmethod
    def of(cls, info: ModelInfo) -> HubState:
        """The state that the hub describes."""
        files = {
            sibling.rfilename: HubFile(
                sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else "", sibling.blob_id or ""
            )
            for sibling in info.siblings or ()
        }
        return cls(str(info.sha), bool(info.private), files)


class Hub:
    """One repository of a hub, at one revision; each failure is an error in one sentence."""

    def __init__(self, repository: str, revision: str, endpoint: str | None) -> None:
        self.repository, self.revision = text(repository, "repository"), text(revision, "revision")
        if not REPOSITORY.fullmatch(repository):
            raise UsageError(f"{brief(repository)} is no name of a repository", "name it as OWNER/NAME")
        if not revision.strip():
            raise UsageError("the revision is empty", "name a branch, a tag or a commit")
        self._api = _client(endpoint)
        self.address = self._api.endpoint

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"{self.address}/{self.repository}"

    def state(self) -> HubState:
        """What the repository holds now."""
        with self._asking():
            info = self._api.model_info(self.repository, revision=self.revision, files_metadata=True, timeout=PATIENCE)
            return HubState.of(info)

    def made(self, *, public: bool) -> HubState:
        """What the repository holds; it is made, or gets this branch, where there is none."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            state = self.state()
        except UsageError as error:
            new = isinstance(error.__cause__, RepositoryNotFoundError)
            if isinstance(error.__cause__, GatedRepoError) or not (
                new or isinstance(error.__cause__, RevisionNotFoundError)
            ):
                raise
            with self._asking(writes=True):
                if new:
                    self._api.create_repo(self.repository, private=not public)
                if self.revision != MAIN:
                    self._api.create_branch(self.repository, branch=self.revision, exist_ok=True)
            state = self.state()
        if not (public or state.private):
            problem = f"everybody can read {self.repository}, and a push puts the documents there"
            raise UsageError(problem, "if they may, push with --public (public=True); else push to another name")
        return state

    def fetch(self, name: str, commit: str, folder: Path, progress: Any = None) -> Path:
        """A file of the repository, as an ordinary file below a folder."""
        with self._asking():
            path = self._api.hf_hub_download(
                self.repository,
                name,
                revision=commit,
                local_dir=folder,
                tqdm_class=progress or _counter(_count_nothing),
            )
            return Path(str(path))

    def manifest(self, state: HubState, folder: Path) -> str:
        """The text of the manifest."""
        entry = state.files.get(artifact.MANIFEST)
        if entry is None:
            problem = f"{self.repository} is not a Triever artifact: it has no {artifact.MANIFEST}"
            raise ArtifactError(problem, "check the name; a pretrained model is used with --set backbone=OWNER/NAME")
        if entry.size > LARGEST_MANIFEST:
            raise ArtifactError(f"{self.repository} has a manifest of {entry.size:,} bytes", "do not use it")
        content = self.fetch(artifact.MANIFEST, state.commit, folder).read_bytes()
        return content.decode("utf-8", errors="replace")  # what is replaced is not JSON, or has another digest

    def commit(self, changes: dict[str, str | bytes], gone: Iterable[str], parent: str) -> str:
        """Upload files, by name their paths or contents, and remove others, in one commit; its hash."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        with self._asking(writes=True), warnings.catch_warnings(), _quiet_bars():
            warnings.simplefilter("ignore")  # that tables belong into datasets
            operations = [
                *(CommitOperationDelete(name) for name in gone),
                *(CommitOperationAdd(name, content) for name, content in changes.items()),
            ]
            done = self._api.create_commit(
                self.repository,
                operations,
                commit_message=f"triever push, with Triever {__version__}",
                revision=self.revision,
                parent_commit=parent,
            )
            return str(done.oid)

    @contextlib.contextmanager
    def _asking(self, *, writes: bool = False) -> Generator[None]:
        """Turn whatever goes wrong while the hub is asked into one sentence."""
        try:
            yield
        except (TrieverError, MemoryError):
            raise
        except Exception as error:
            cause = _root(error)
            raise self._sentence(cause, writes=writes) from cause

    def _sentence(self, error: BaseException, *, writes: bool) -> TrieverError:
        from huggingface_hub import errors as known

        status = getattr(getattr(error, "response", None), "status_code", 0)
        right = "that may write to it" if writes else "that may read it"
        if isinstance(error, known.OfflineModeIsEnabled):
            return UsageError(f"HF_HUB_OFFLINE forbids to ask {self.address}", "unset it, or send a zip: triever pack")
        if isinstance(error, known.GatedRepoError):
            problem = f"{self.repository} is only for those whom its owner has let in"
            return UsageError(problem, f"ask for access at {self.url}, then set HF_TOKEN")
        if isinstance(error, known.RepositoryNotFoundError):
            problem = f"{self.address} has no repository {self.repository} that you may see"
            return UsageError(problem, "check the name; if it is private, set HF_TOKEN to a token that may read it")
        if isinstance(error, known.RevisionNotFoundError):
            problem = f"{self.repository} has no revision {self.revision}"
            return UsageError(problem, "name a branch, a tag or a commit")
        if status == 401:
            return UsageError(f"{self.address} does not know who you are", f"set HF_TOKEN to a token {right}")
        if status == 403:
            act = "write to" if writes else "read"
            return UsageError(f"you may not {act} {self.repository}", f"set HF_TOKEN to a token {right}")
        if status == 412:
            return ServerError(f"somebody else has just changed {self.repository}", "run the same again")
        if status == 429:
            return ServerError(f"{self.address} takes no more requests from you for now{_wait(error)}", AGAIN)
        if status:
            return ServerError(f"{self.address} answers {status}: {_first_line(error)}", AGAIN)
        if isinstance(error, known.FileMetadataError | KeyError | TypeError | ValueError):
            problem = f"{self.address} does not answer as a Hugging Face hub does: {_first_line(error)}"
            return ServerError(problem, "check --endpoint and HF_ENDPOINT")
        if isinstance(error, FileNotFoundError) and writes:
            return ArtifactError(f"{error.filename} is gone: another process has changed the retriever", "push again")
        return ServerError(f"{self.address} cannot be reached: {_first_line(error)}", f"check the network, and {AGAIN}")


def _client(endpoint: str | None) -> HfApi:
    from huggingface_hub import HfApi, constants

    constants.HF_HUB_DISABLE_TELEMETRY = True  # it would ask another server what to call the program that runs us
    address = constants.ENDPOINT if endpoint is None else text(endpoint, "endpoint").rstrip("/")
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.port != 0
    except ValueError:
        known = False
    if not known or any(letter.isspace() or not letter.isprintable() for letter in address):
        raise UsageError(f"{brief(address)} is no address of a hub", "for example: https://huggingface.co")
    return HfApi(endpoint=address, library_name="triever", library_version=__version__)


@contextlib.contextmanager
def _quiet_bars() -> Generator[None]:
    """Have the hub's client draw bars only where Triever does."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if is_shown() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _root(error: BaseException) -> BaseException:
    """The error behind an error: the client wraps what it gets from the network."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError | RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _wait(error: Any) -> str:
    """For how long a server that allows no more wants to be left alone, if it says so."""
    from huggingface_hub.utils import parse_ratelimit_headers

    headers = error.response.headers
    limit = parse_ratelimit_headers(headers)
    seconds = limit.reset_in_seconds if limit else headers.get("retry-after")
    return f" ({seconds} seconds)" if seconds else ""


def _first_line(error: BaseException) -> str:
    told = str(getattr(error, "server_message", None) or error).strip() or type(error).__name__
    line = told.splitlines()[0]
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _names(snapshot: artifact.Snapshot) -> set[str]:
    return {entry.file for entry in snapshot.manifest.files.values()}


def _changes(snapshot: artifact.Snapshot, card: str, state: HubState) -> dict[str, str | bytes]:
    """What the repository lacks, by name: paths of files, and the contents of those that are small."""
    changes: dict[str, str | bytes] = {}
    for name, content in {artifact.MANIFEST: snapshot.manifest_text.encode(), README: card.encode()}.items():
        held = state.files.get(name)
        if held is None or not held.is_same(hashlib.sha256(content).hexdigest(), lambda content=content: content):
            changes[name] = content
    for role, entry in snapshot.manifest.files.items():
        held = state.files.get(entry.file)
        if held is None or not held.is_same(entry.sha256, lambda role=role: snapshot.file(role).read()):
            changes[entry.file] = str(snapshot.path / entry.file)
    return changes


def _refuse_others(hub: Hub, state: HubState) -> None:
    """Refuse a repository with somebody's files in it that is not an artifact."""
    others = sorted(name for name in state.files if not BESIDE.fullmatch(name))
    if not others:
        return
    if artifact.MANIFEST in others:
        with tempfile.TemporaryDirectory(prefix="triever-push-") as folder:
            hub.manifest(state, Path(folder))
            if artifact.is_artifact(Path(folder)):
                return
    problem = f"{hub.repository} holds other files ({others[0]}) and is not a Triever artifact"
    raise UsageError(problem, "push to a new repository")


def _is_ours(hub: Hub, state: HubState) -> bool:
    """Whether the card of a repository is one that a push wrote."""
    with tempfile.TemporaryDirectory(prefix="triever-push-") as folder:
        return MARK in hub.fetch(README, state.commit, Path(folder)).read_text(encoding="utf-8", errors="replace")


def _check_listed(manifest: artifact.Manifest, state: HubState, shown: Path) -> None:
    """Refuse files that are missing or are not those of the manifest, as far as the hub's list tells it."""
    for entry in manifest.files.values():
        held = state.files.get(entry.file)
        if held is None:
            raise ArtifactError(f"{shown} lacks {entry.file}", "ask its owner to push it again")
        if held.size != entry.bytes or held.sha256 not in ("", entry.sha256):
            raise ArtifactError(f"{shown / entry.file} is not what was pushed", "ask its owner to push it again")


def _count_nothing(done: int, note: str) -> None:
    pass


def _counter(count: Callable[[int, str], object], before: int = 0) -> Any:
    """What the hub's client takes for a bar: it counts the bytes of one file, after so many of others."""

    class Counter:
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            self.done = initial

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, more: float | None = 1) -> None:
            self.done += int(more or 0)
            count(before + self.done, "")

        def update_transfer(self, more: float | None = 1) -> None:
            pass

        def set_postfix_str(self, *_: object, **__: object) -> None:
            pass

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            pass

    return Counter
