"""The command line: a table of ordinary functions, and how a process that runs one of them ends.

Results go to standard output, everything else to standard error. A mistake of the user ends with
exit code 2 and one sentence; Ctrl-C ends with 130 and leaves nothing half-written.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from triever import plugins, progress, terminal
from triever.commands import choose, data, lab, learn, measure, serve, share, use
from triever.commands.shared import is_first_process
from triever.errors import TrieverError
from triever.printable import printable, printable_lines
from triever.terminal import OneLine, note

COMMANDS: dict[str, Callable[..., None] | dict[str, Callable[..., None]]] = {
    "quickstart": learn.quickstart,
    "data": {
        "info": data.data_info,
        "show": data.data_show,
        "convert": data.data_convert,
        "sample": data.data_sample,
    },
    "suggest": choose.suggest,
    "options": choose.options,
    "fit": learn.fit,
    "write-queries": learn.write_queries,
    "search": use.search,
    "ask": use.ask,
    "explain": use.explain,
    "run": use.run,
    "vectors": use.vectors,
    "evaluate": measure.evaluate,
    "compare": measure.compare,
    "analyse": {
        "overlap": measure.analyse_overlap,
        "seen": measure.analyse_seen,
        "calibration": measure.analyse_calibration,
        "vocabulary": measure.analyse_vocabulary,
        "heads": measure.analyse_heads,
        "normalisation": measure.analyse_normalisation,
        "rank": measure.analyse_rank,
        "posterior": measure.analyse_posterior,
        "memory": measure.analyse_memory,
    },
    "add": use.add,
    "delete": use.delete,
    "sync": use.sync,
    "status": use.status,
    "shard": use.shard,
    "push": share.push,
    "pull": share.pull,
    "pack": share.pack,
    "unpack": share.unpack,
    "serve": serve.serve,
    "mcp": serve.mcp,
    "weights": {"list": learn.weights_list, "install": learn.weights_install},
    "docids": {"info": lab.docids_info, "browse": use.docids_browse},
    "bench": {
        "decode": lab.bench_decode,
        "trie": lab.bench_trie,
        "train": lab.bench_train,
        "search": lab.bench_search,
        "serve": serve.bench_serve,
    },
    "experiment": lab.experiment,
    "results": lab.results,
    "cache": {"list": data.cache_list, "clear": data.cache_clear},
}
GROUPS = {
    "analyse": "Analyse where systems differ, calibration, a vocabulary, attention heads, theory of scores, or memory.",
    "weights": "List and install pretrained weights. All trained systems can start from them: generative, contextual, "
    "gdr, dense, multivector, reranked, reatt and answerer.",
    "docids": "Describe the identifiers that a scheme gives to documents, or browse those of a saved retriever.",
    "bench": "Measure speed and size beside other libraries.",
    "data": "Show, convert and sample datasets.",
    "cache": "List and remove what is cached.",
}


def app() -> typer.Typer:
    """The table as a Typer application."""
    root = _group(
        "Train retrievers on your documents, search with them, and measure how well they do. "
        "Begin with: triever quickstart."
    )
    root.callback(invoke_without_command=True)(_root)
    for name, command in COMMANDS.items():
        if isinstance(command, dict):
            group = _group(GROUPS[name])
            for part, function in command.items():
                group.command(part, cls=Command, epilog=VOLUME)(function)
            root.add_typer(group, name=name)
        else:
            root.command(name, cls=Command, epilog=VOLUME)(command)
    return root


NAMING = {
    "system": plugins.RETRIEVERS,
    "systems": plugins.RETRIEVERS,
    "scheme": plugins.SCHEMES,
    "measure": plugins.MEASURES,
}
"""Parameters of commands that name something which packages may bring, and the group of its entry points."""


VOLUME = (
    "With every command: -v or --verbose prints more messages, -q or --quiet prints nothing but results and errors."
)
"""What ends every help: these words may stand anywhere on the line, so that no command takes them itself."""


class Group(TyperGroup):
    """A group of commands, whose help shows flags as flags."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _bare_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """A command whose help also names what installed packages bring; nobody looks for them before help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _bare_flags(self.get_params(ctx))
        named: list[Any] = [parameter for parameter in self.params if parameter.name in NAMING]
        for parameter in named:
            if brought := plugins.names(NAMING[parameter.name]):
                parameter.help = f"{parameter.help} From installed packages: {', '.join(brought)}."
        super().format_help(ctx, formatter)


def _bare_flags(parameters: Sequence[Any]) -> None:
    """Have flags shown without a type: Typer would write `--json <bool>`, as if a word had to follow."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        cls=Group,
        epilog=VOLUME,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from triever.version import __version__

        typer.echo(f"triever {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; the process ends with 0, 1 (a bug, or a failed run), 2 (a mistake of the user) or 130 (Ctrl-C)."""
    gc.set_threshold(*RARE_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no † gets a question mark
            stream.reconfigure(errors="replace")
    words = _set_volume(list(sys.argv[1:] if arguments is None else arguments))
    try:
        with progress.phase(" ".join(["triever", *words[:1]])):
            sys.exit(_run(words))
    except Exception:  # a bug, which may quote anything
        sys.stderr.write(printable_lines(traceback.format_exc()))
        sys.exit(1)
    finally:
        progress.tell(None)
        gc.freeze()  # the process ends: what its imports have made is not looked through once more


def _run(words: list[str]) -> int:
    try:
        code = app()(words or ["--help"], prog_name="triever", standalone_mode=False) or 0
    except CommandLineError as error:
        return _refuse(error)
    except TrieverError as error:
        return _complain(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe has left, as `head` does
        return 0
    except MemoryError:
        return _complain(NO_MEMORY)
    except RuntimeError as error:  # as which PyTorch reports missing memory
        if not _is_about_memory(error):
            raise
        return _complain(NO_MEMORY)
    except OSError as error:
        short = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space, then run it again" if short else "check the path and its permissions"
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}; {hint}")
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # newer Typers return it by themselves
        note("interrupted; nothing was left half-written")
    return code


RARE_COLLECTIONS = (50_000, 20, 100)
"""When garbage is collected: imports make a million objects that stay, and to look through them takes .3 seconds."""
INTERRUPTED = 130
NO_MEMORY = "there is not enough memory; take a sample (triever data sample), or a larger machine"

# Typer has moved its copy of click about; the base of its errors has kept its name.
CommandLineError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _is_about_memory(error: RuntimeError) -> bool:
    from triever.training.loop import OUT_OF_MEMORY

    return any(words in str(error) for words in OUT_OF_MEMORY)


def _refuse(error: Any) -> int:
    """Complain about words that are no command; a group alone has shown its help already."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return 2
    command = error.ctx.command_path if error.ctx else "triever"
    return _complain(f"{error.format_message().rstrip('.?')}; see: {command} --help")


def _complain(sentence: str) -> int:
    sys.stderr.write(f"triever: {printable(sentence)}\n")
    return 2


def _set_volume(words: list[str]) -> list[str]:
    """Take -v and -q out of the words, wherever they stand, and set how much is logged."""
    end = words.index("--") if "--" in words else len(words)  # words after -- are not options
    quiet = [word for word in words[:end] if word in ("-q", "--quiet")]
    loud = [word for word in words[:end] if word in ("-v", "--verbose")]
    level = logging.ERROR if quiet else logging.DEBUG if loud else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("triever").setLevel(level)
    progress.show(sys.stderr.isatty() and not quiet)
    silent = quiet or sys.stderr.isatty() or not is_first_process()
    progress.tell(None if silent else note, always=True)  # no log is silent for long
    terminal.hush(bool(quiet))
    terminal.tame_warnings()
    return [word for word in words[:end] if word not in (*quiet, *loud)] + words[end:]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
