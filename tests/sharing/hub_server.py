"""A stand-in for the Hugging Face hub, for tests: what the hub's own client asks of it to push and to pull, in memory.

It speaks the protocol of the real one as far as the client uses it: repositories that are made, branches, information
about a commit with the sizes and hashes of its files, `preupload`, the batch, the upload and the check of Git LFS,
commits as lines of JSON, and `resolve` with its headers, with ranges, and with a redirect to another place for large
files. It keeps what it was asked, and can be told to misbehave.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

WRITER, READER = "hf_writer", "hf_reader"
"""The tokens it knows: one may write to all repositories of `someone`, one may only read them."""
LARGE = (".npy", ".parquet", ".safetensors")


@dataclass
class Repository:
    """Branches, commits by hash, and the files of each; large files are kept by their hashes."""

    private: bool = False
    commits: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)  # name to ("git" or "lfs", hash)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, tuple[str, str]]) -> str:
        content = json.dumps([len(self.commits), self.branches.get(branch), sorted(files.items())])
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        return sha

    def resolved(self, revision: str) -> str | None:
        return self.branches.get(revision) or (revision if revision in self.commits else None)


@dataclass
class HubServer:
    """What the server holds, what it was asked, and how it is to fail."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    uploaded: list[str] = field(default_factory=list)  # names or hashes of files whose content was sent
    served: dict[str, int] = field(default_factory=dict)  # bytes sent, by name
    status: dict[str, int] = field(default_factory=dict)  # what to answer to paths that hold this text
    headers: dict[str, str] = field(default_factory=dict)  # with such an answer
    cut: dict[str, int] = field(default_factory=dict)  # bytes after which the connection is cut, once
    hold: dict[str, threading.Event] = field(default_factory=dict)  # files that come half, and then not for long
    held: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def put(self, name: str, files: dict[str, bytes], *, private: bool = True) -> None:
        """Make a repository as somebody else would have left it."""
        repository = self.repositories.setdefault(name, Repository(private))
        stored = {
            file: self.store(content, "lfs" if file.endswith(LARGE) else "git") for file, content in files.items()
        }
        repository.commit("main", stored)

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """The files of a repository."""
        repository = self.repositories[name]
        sha = repository.resolved(revision)
        assert sha
        return {file: self.objects[key] for file, key in repository.commits[sha].items()}

    def change(self, name: str, file: str, content: bytes) -> None:
        """Damage a file where it is stored: all that is said of it stays as it was."""
        repository = self.repositories[name]
        key = repository.commits[repository.branches["main"]][file]
        self.objects[key] = content

    def store(self, content: bytes, kind: str) -> tuple[str, str]:
        key = kind, git_hash(content) if kind == "git" else hashlib.sha256(content).hexdigest()
        self.objects[key] = content
        return key

    def count(self, method: str, part: str) -> int:
        return sum(verb == method and part in path for verb, path in self.asked)


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextlib.contextmanager
def running() -> Iterator[HubServer]:
    """A server on a port of its own."""
    hub = HubServer()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        for event in hub.hold.values():
            event.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Refused(Exception):
    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # an answer leaves in one piece: otherwise the system waits before it sends the second

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.asked.append((self.command, path))
        try:
            for part, status in self.hub.status.items():
                if part in path:
                    raise _Refused(status, f"told to answer {status}")
            for method, pattern, action in ROUTES:
                if self.command in method.split() and (match := re.fullmatch(pattern, path)):
                    action(self, *match.groups(), query=parse_qs(parts.query))
                    return
            raise _Refused(404, f"there is nothing at {path}")
        except _Refused as error:
            extra = {"X-Error-Code": error.code} if error.code else {}
            extra |= self.hub.headers if error.status in self.hub.status.values() else {}
            self._json({"error": error.message}, error.status, {"X-Error-Message": error.message, **extra})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _repository(self, name: str, *, writes: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        known = self._token in (WRITER, READER)
        if repository is None or (repository.private and not known):
            raise _Refused(404 if known else 401, "Repository not found", "RepoNotFound")
        if writes and self._token != WRITER:
            raise _Refused(403 if known else 401, "You may not write here")
        return repository

    def _commit_of(self, repository: Repository, revision: str) -> str:
        sha = repository.resolved(revision)
        if sha is None:
            raise _Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha

    def create(self, query: Any) -> None:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        if self._token != WRITER or asked["organization"] != "someone":
            raise _Refused(
                403 if self._token else 401, "You don't have the rights to create a model under this namespace"
            )
        if name in self.hub.repositories:
            raise _Refused(409, "You already created this model repo")
        repository = self.hub.repositories[name] = Repository(asked.get("visibility") == "private")
        repository.commit("main", {".gitattributes": self.hub.store(b"*.npy filter=lfs\n", "git")})
        self._json({"url": f"{self.hub.address}/{name}", "name": name})

    def info(self, name: str, revision: str | None = None, *, query: Any) -> None:
        repository = self._repository(name)
        sha = self._commit_of(repository, revision or "main")
        siblings = []
        for file, (kind, digest) in repository.commits[sha].items():
            size = len(self.hub.objects[kind, digest])
            told: dict[str, Any] = {"rfilename": file, "blobId": digest[:40], "size": size}
            if kind == "lfs":
                told["lfs"] = {"sha256": digest, "size": size, "pointerSize": 130}
            siblings.append(told)
        self._json({"id": name, "sha": sha, "private": repository.private, "siblings": siblings})

    def branch(self, name: str, branch: str, *, query: Any) -> None:
        repository = self._repository(name, writes=True)
        if branch in repository.branches:
            raise _Refused(409, "Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        self._json({})

    def validate(self, query: Any) -> None:
        """As the hub does: the head of a card has to be a table of YAML."""
        match = re.match(r"---\n(.*?)\n---\n", json.loads(self.body)["content"], re.DOTALL)
        try:
            facts = yaml.safe_load(match[1]) if match else None
        except yaml.YAMLError:
            facts = None
        if not isinstance(facts, dict) or not all(isinstance(tag, str) for tag in facts.get("tags", [])):
            self._json({"errors": [{"message": "the metadata are not a table of YAML"}]}, 400)
        else:
            self._json({"errors": [], "warnings": []})

    def preupload(self, name: str, revision: str, *, query: Any) -> None:
        repository = self._repository(name, writes=True)
        held = repository.commits[self._commit_of(repository, revision)]
        files = []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if file["path"].endswith(LARGE) else "regular"
            oid = held.get(file["path"], ("", None))[1]
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._json({"files": files})

    def batch(self, name: str, *, query: Any) -> None:
        self._repository(name, writes=True)
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            told = {"oid": wanted["oid"], "size": wanted["size"]}
            if ("lfs", wanted["oid"]) not in self.hub.objects:
                upload = {"href": f"{self.hub.address}/storage/{wanted['oid']}"}
                told["actions"] = {"upload": upload, "verify": {"href": f"{self.hub.address}/verify/{wanted['oid']}"}}
            objects.append(told)
        self._json({"transfer": "basic", "objects": objects})

    def upload(self, oid: str, *, query: Any) -> None:
        content = self.body
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = self._chunks()
        if hashlib.sha256(content).hexdigest() != oid:
            raise _Refused(400, "the content has another hash")
        self.hub.uploaded.append(oid)
        self.hub.store(content, "lfs")
        self._json({})

    def _chunks(self) -> bytes:
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def verify(self, oid: str, *, query: Any) -> None:
        if ("lfs", oid) not in self.hub.objects:
            raise _Refused(404, "it was not uploaded")
        self._json({})

    def commit(self, name: str, branch: str, *, query: Any) -> None:
        repository = self._repository(name, writes=True)
        lines = [json.loads(line) for line in self.body.splitlines()]
        head = self._commit_of(repository, branch)
        if lines[0]["value"].get("parentCommit", head) != head:
            raise _Refused(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[head])
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "lfsFile":
                assert ("lfs", value["oid"]) in self.hub.objects
                files[value["path"]] = ("lfs", value["oid"])
            else:
                self.hub.uploaded.append(value["path"])
                files[value["path"]] = self.hub.store(base64.b64decode(value["content"]), "git")
        sha = repository.commit(branch, files)
        self._json({"commitUrl": f"{self.hub.address}/{name}/commit/{sha}", "commitOid": sha})

    def resolve(self, name: str, revision: str, file: str, *, query: Any) -> None:
        repository = self._repository(name)
        sha = self._commit_of(repository, revision)
        key = repository.commits[sha].get(file)
        if key is None:
            raise _Refused(404, "Entry not found", "EntryNotFound")
        kind, digest = key
        headers = {"X-Repo-Commit": sha, "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if kind == "lfs":  # which lie elsewhere
            size = len(self.hub.objects[key])
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(size)}
            headers["Location"] = f"{self.hub.address.replace('127.0.0.1', 'localhost')}/stored/{digest}/{file}"
            self._json({}, 302, headers)
        else:
            self._content(file, self.hub.objects[key], headers)

    def stored(self, digest: str, file: str, *, query: Any) -> None:
        if self._token:
            raise _Refused(400, "a token was sent to where it does not belong")
        self._content(file, self.hub.objects["lfs", digest], {"Accept-Ranges": "bytes"})

    def _content(self, file: str, content: bytes, headers: dict[str, str]) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(wanted[1]) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        content = content[start:]
        if file in self.hub.hold:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.hub.held.set()
            self.hub.hold[file].wait(60)
        if cut := self.hub.cut.pop(file, 0):
            content, self.close_connection = content[:cut], True
        self.hub.served[file] = self.hub.served.get(file, 0) + len(content)
        self.wfile.write(content if file not in self.hub.hold else content[len(content) // 2 :])


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = (
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", "/api/validate-yaml", _Handler.validate),
    ("GET", f"/api/models/{NAME}", _Handler.info),
    ("GET", f"/api/models/{NAME}/revision/(.+)", _Handler.info),
    ("POST", f"/api/models/{NAME}/branch/(.+)", _Handler.branch),
    ("POST", f"/api/models/{NAME}/preupload/(.+)", _Handler.preupload),
    ("POST", f"/api/models/{NAME}/commit/(.+)", _Handler.commit),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/storage/([0-9a-f]{64})", _Handler.upload),
    ("POST", "/verify/([0-9a-f]{64})", _Handler.verify),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", _Handler.resolve),
    ("GET HEAD", "/stored/([0-9a-f]{64})/(.+)", _Handler.stored),
)
