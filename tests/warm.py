"""The command `triever` for tests, without the seconds that each call of it spends on imports.

A process stands ready that has imported everything and does nothing else: for each call it makes a copy of itself,
which takes over the caller's folder, environment and streams, and runs the command. The suite calls it some hundred
times. `run` runs a command to its end, and `Begun` is one that can be killed. `program()` is the path of a program that
does what `triever` does, for shells and terminals. `run_code` and `code_program()` are their siblings for Python code.

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
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NoReturn

import triever

ROOT = Path(__file__).parent.parent
ALSO = (  # what Triever imports when it is needed, and takes long
    "accelerate",
    "bm25s",
    "faiss",
    "ir_measures",
    "matplotlib.pyplot",
    "peft",
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
    "transformers.optimization",
    "typer.rich_utils",
)

CALLER = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    said = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    said |= {{"code": {strict}, "strict": {strict}}}
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
        path.write_text(CALLER.format(python=sys.executable, address=str(address), strict=name == "code"))
        path.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(address)],
        cwd=ROOT,
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

    def __init__(
        self,
        words: Sequence[object],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
        errors: int | None = None,
        code: bool = False,
    ) -> None:
        said = {
            "words": [str(word) for word in words],
            "code": code,
            "strict": False,
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
        }
        message = json.dumps(said).encode()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(str(program().with_name("socket")))
        with open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno() if stream is None else stream for stream in (None, output, errors)]
            socket.send_fds(self._server, [len(message).to_bytes(8, "big")], streams)
            self._server.sendall(message)
            self._process = int.from_bytes(self._server.recv(4), "big")

    def running(self) -> bool:
        return not select.select([self._server], [], [], 0)[0]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.kill(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, as a shell tells it: 128 and the signal for what was killed."""
        with self._server:
            return int.from_bytes(self._server.recv(4), "big")


def run(
    words: Sequence[object],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    code: bool = False,
) -> CompletedProcess[str]:
    """Run a command to its end; without the process that `program()` needs beside it."""
    reading, writing = zip(os.pipe(), os.pipe(), strict=True)
    command = Begun(words, folder, environment, *writing, code=code)
    for stream in writing:
        os.close(stream)
    with ThreadPoolExecutor(2) as both:
        printed = list(both.map(_read_to_end, reading))
    return CompletedProcess([*map(str, words)], command.wait(), *printed)


def _read_to_end(stream: int) -> str:
    with open(stream) as file:
        return file.read()


def run_code(text: str, *words: object) -> CompletedProcess[str]:
    """Run code in the project's root as `python -c` would, with its words behind it."""
    return run([text, *words], ROOT, code=True)


def serve(address: str) -> Callable[[], Any]:
    """Answer calls until standard input ends. Returns in every copy, with what the copy is to do."""
    _prepare()
    signals, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes `select` below when a copy has ended
    callers: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready")
        while True:
            ready, _, _ = select.select([listener, signals, 0], [], [])
            if 0 in ready:
                return lambda: 0
            if signals in ready:
                signals.recv(2**10)
                _tell_ends(callers)
            if listener in ready:
                caller, _ = listener.accept()
                said, streams = _read_call(caller)
                child = os.fork() if said else None
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for connection in (signals, wakeup, caller, *callers.values()):
                        connection.close()
                    return _command(said, streams)
                for stream in streams:
                    os.close(stream)
                if child:
                    callers[child] = caller
                    _tell(caller, child)


def _tell_ends(callers: dict[int, socket.socket]) -> None:
    """Tell the callers of copies that have ended how they did."""
    for child in list(callers):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with callers.pop(child) as caller:
                _tell(caller, code if code >= 0 else 128 - code)


def _tell(caller: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the caller may have gone
        caller.sendall(number.to_bytes(4, "big"))


def _read_call(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a caller says, and its streams; it says nothing if it goes before it has said all."""
    size, streams, _, _ = socket.recv_fds(caller, 8, 3)
    message = b""
    while len(message) < int.from_bytes(size, "big"):
        if not (piece := caller.recv(2**16)):
            return {}, streams
        message += piece
    return json.loads(message or b"{}"), streams


def _prepare() -> None:
    """Do what all copies would have to do."""
    gc.disable()  # there is no garbage yet
    _import_everything()
    _build_commands()
    _keep_finalizers_quiet()
    gc.freeze()  # so that copies do not look through what they share with this process
    gc.enable()


def _import_everything() -> None:
    for module in pkgutil.walk_packages(triever.__path__, "triever."):
        adapter = module.name.startswith("triever.integrations.")  # for a framework that no other command needs
        if not adapter and not module.name.rpartition(".")[2].startswith("_"):
            may_be_missing = module.name.startswith(("triever.serve.", "triever.models.triton"))
            extra = (ImportError,) if may_be_missing else ()
            with contextlib.suppress(*extra):
                importlib.import_module(module.name)
    for name in ALSO:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _build_commands() -> None:
    """Build the commands from their functions once; that takes longer than most of them."""
    import typer.main

    from triever import cli

    cli.app = functools.cache(cli.app)
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(cli.app())


def _keep_finalizers_quiet() -> None:
    """Keep a copy from taking down what the imports have made: it would have to copy thousands of pages for it."""
    for finalizer in list(weakref.finalize._registry):  # ty: ignore[unresolved-attribute]
        finalizer.atexit = False


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
        return functools.partial(_run_code, *said["words"], strict=said["strict"])
    sys.argv = ["triever", *said["words"]]
    return main


def _run_code(text: str, *words: str, strict: bool) -> None:
    """Run code as the main program; strictly, its warnings are errors, also those that imports have turned off."""
    sys.argv, sys.path[0] = ["-c", *words], ""
    if strict:
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
