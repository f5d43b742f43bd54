"""The command `triever` for tests, without the seconds that each call of it spends on imports.

`program()` is the path of a program that does what `triever` does. Behind it stands a process that has imported
everything and does nothing else: for each call it makes a copy of itself, which takes over the caller's folder,
environment and streams, and runs the command. The suite calls it some hundred times. `code_program()` is its sibling
for Python code, which it takes as its only word, and `Begun` is a command that can be killed.

What is about the process itself, such as how it is interrupted or what it imports, needs the real one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import triever

ALSO = (  # what Triever imports when it is needed, and takes long
    "accelerate",
    "bm25s",
    "faiss",
    "ir_measures",
    "matplotlib.pyplot",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pydantic.json_schema",
    "pydantic.type_adapter",
    "pydantic.types",
    "rich._emoji_codes",
    "rich.markdown",
    "rich.progress",
    "rich.table",
    "scipy.optimize",
    "sklearn.feature_extraction.text",
    "torch.utils.tensorboard",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "typer.rich_utils",
)

CALLER = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    said = {{"words": sys.argv[1:], "code": {code}, "folder": os.getcwd(), "environment": dict(os.environ)}}
    message = json.dumps(said).encode()
    socket.send_fds(server, [len(message).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(message)
    server.recv(4)
    ended = server.recv(4)
sys.exit(int.from_bytes(ended, "big") if ended else 1)
"""


@functools.cache
def program() -> Path:
    """A program `triever` that is as good as the real one; the process behind it ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="triever-warm-")
    address = Path(folder.name) / "socket"
    for name in ("triever", "code"):
        path = Path(folder.name) / name
        path.write_text(CALLER.format(python=sys.executable, address=str(address), code=name == "code"))
        path.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(address)],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.read(5) == b"ready"
    program.kept = folder, server  # ty: ignore[unresolved-attribute]
    return Path(folder.name) / "triever"


def code_program() -> Path:
    """A program that runs the code in its first word as `python -W error -c` would."""
    return program().with_name("code")


class Begun:
    """A command that has begun, in a process of its own; `kill` is heard by that process and by no other."""

    def __init__(self, words: Sequence[str], folder: Path | None = None, errors: Path = Path(os.devnull)) -> None:
        said = {"words": list(words), "code": False, "folder": str(folder or Path.cwd()), "environment": {**os.environ}}
        message = json.dumps(said).encode()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(str(program().with_name("socket")))
        with open(os.devnull, "r+b") as nothing, errors.open("ab") as told:
            streams = [nothing.fileno(), nothing.fileno(), told.fileno()]
            socket.send_fds(self._server, [len(message).to_bytes(8, "big")], streams)
            self._server.sendall(message)
            self._process = int.from_bytes(self._server.recv(4), "big")

    def running(self) -> bool:
        return not select.select([self._server], [], [], 0)[0]

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, as a shell tells it: 128 and the signal for what was killed."""
        with self._server:
            return int.from_bytes(self._server.recv(4), "big")


def serve(address: str) -> Callable[[], Any]:
    """Answer calls until standard input ends. Returns in every copy, with what the copy is to do."""
    _import_everything()
    gc.freeze()  # so that copies do not look through what they share with this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready")
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if listener not in ready:
                return lambda: 0
            connection, _ = listener.accept()
            if not os.fork():
                return _answer(connection)
            connection.close()


def _import_everything() -> None:
    for module in pkgutil.walk_packages(triever.__path__, "triever."):
        if not module.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(module.name)
    for name in ALSO:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _answer(connection: socket.socket) -> Callable[[], Any]:
    """Run a command in a copy of this process, and tell the caller how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    message = b""
    while len(message) < int.from_bytes(size, "big"):
        message += connection.recv(2**16)
    child = os.fork()
    if not child:
        connection.close()
        return _command(json.loads(message), streams)
    for stream in streams:
        os.close(stream)
    connection.sendall(child.to_bytes(4, "big"))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):  # the caller may have gone
        connection.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
    os._exit(0)  # there is nothing to take down


def _command(said: dict[str, Any], streams: list[int]) -> Callable[[], Any]:
    """Become the caller's command."""
    from triever.cli import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(said["folder"])
    os.environ.clear()
    os.environ.update(said["environment"])
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if said["code"]:
        return functools.partial(_run_code, *said["words"])
    sys.argv = ["triever", *said["words"]]
    return main


def _run_code(text: str) -> None:
    """Run code as the main program; its warnings are errors, also those that the imports before have turned off."""
    sys.argv, sys.path[0] = ["-c"], ""
    warnings.resetwarnings()
    warnings.simplefilter("error")
    exec(compile(text, "<shown>", "exec"), {"__name__": "__main__"})


def _end(code: Any) -> NoReturn:
    """As `sys.exit`, but the modules, which are many, are not taken down one by one."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    work = serve(sys.argv[1])
    try:
        ended = work()
    except SystemExit as stop:
        ended = stop.code
    except BaseException:
        traceback.print_exc()
        ended = 1
    _end(ended)
