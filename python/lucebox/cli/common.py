"""What the commands share: options, loading with a progress bar, and errors without tracebacks."""

from __future__ import annotations

import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from lucebox import settings
from lucebox.errors import Error, RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from lucebox.engine import Engine

P = ParamSpec("P")

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help='GGUF file, or "nano" for the bundled model. Default: LUCEBOX_MODEL or nano.'),
]
CtxOption = Annotated[
    int | None,
    typer.Option(
        "--max-ctx",
        "--ctx-size",
        "--ctx",
        "-c",
        help="Tokens that prompt and reply may take together. Default: what the file says the model was made for, "
        "but at most 8192.",
    ),
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", "-t", min=0, help="CPU threads. Default: one a physical core.")
]
KvOption = Annotated[str, typer.Option("--kv", help="Type of the KV cache: q8_0, f16 or f32.")]
VariantOption = Annotated[
    str,
    typer.Option("--variant", help="CPU kernels: auto, or one that `lucebox doctor` lists. All give the same bits."),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", help="auto (a GPU that this build has kernels for, else the CPU), cpu, hip:N, cuda:N or emulated."
    ),
]
LaunchOption = Annotated[
    str,
    typer.Option(
        "--launch", help="How a GPU's steps are launched: auto, graph, split or direct. All give the same bits."
    ),
]
DraftOption = Annotated[
    str | None,
    typer.Option(
        "--draft",
        "--model-draft",
        "-md",
        help='A DFlash drafter\'s GGUF file for the model, or "nano". Replies come faster; with --speculative match they stay the same.',
    ),
]
DraftBlockOption = Annotated[
    int | None,
    typer.Option(
        "--draft-block-size",
        min=2,
        help="With --draft: rows of a block, the token that they follow included. Default: as trained; at most twice that.",
    ),
]
LookupOption = Annotated[
    bool, typer.Option("--lookup/--no-lookup", help="Draft from the text so far where it repeats itself.")
]
SpeculativeOption = Annotated[
    str,
    typer.Option(
        "--speculative",
        help="match: the text is that without drafts. reject: when sampling, more drafts are kept and the text for a seed changes, "
        "but not how likely any text is. off: no drafts.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Output for programs.")]
MaxTokensOption = Annotated[
    int,
    typer.Option(
        "--max-tokens", "--n-predict", "-n", min=-1, help="Length of a reply at most; -1 = to the context's end."
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", "-s", min=0, help="Of the random numbers. Default: one drawn at random.")
]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", help="Text in front of which a reply ends; may be given again.")
]


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """A user's mistake is one line and exit code 1, Ctrl-C is 130; warnings are lines, too."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: note(str(message))
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except Error as error:
                note(f"error: {error}")
                raise typer.Exit(1) from None
            except KeyboardInterrupt:
                note("\ninterrupted")
                raise typer.Exit(130) from None
            except BrokenPipeError:
                # The reader has gone; nothing can be said, and the interpreter must not try to at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(1) from None

    return run


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write(text: str) -> None:
    """To standard output as UTF-8, whatever the locale says; bytes of arguments and files come out as they were."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    sys.stdout.flush()
    buffer.write(text.encode("utf-8", "surrogateescape"))
    buffer.flush()


def write_json(value: Any) -> None:
    write(json.dumps(value) + "\n")


def console() -> Console:
    """For tables on standard output; as wide as they need where it is no terminal."""
    from rich.console import Console

    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160)


def model_name(model: str | None) -> str:
    return settings.read().model if model is None else model


def load(
    model: str | None,
    *,
    max_ctx: int | None = None,
    kv: str = "q8_0",
    threads: int | None = None,
    variant: str = "auto",
    device: str = "auto",
    launch: str = "auto",
    slots: int = 1,
    draft: str | None = None,
    draft_block_size: int | None = None,
) -> Engine:
    """Loads with a progress bar where standard error is a terminal."""
    import lucebox

    def go(progress: Callable[[float], None] | None) -> Engine:
        return lucebox.load(
            model_name(model),
            max_ctx=max_ctx,
            kv=kv,
            threads=threads,
            variant=variant,
            device=device,
            launch=launch,
            slots=slots,
            draft=draft,
            draft_block_size=draft_block_size,
            progress=progress,
        )

    with progress_bar("loading") as progress:
        return go(progress)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None] | None]:
    """Takes 0 … 1; None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda done: bar.update(task, completed=done)


def token_limit(max_tokens: int) -> int | None:
    return None if max_tokens < 0 else max_tokens


def read_prompt(prompt: str | None, file: str | None) -> str | bytes:
    """The argument, standard input for `-`, or a file's bytes."""
    if file is not None:
        if prompt is not None:
            raise typer.BadParameter("give a prompt or --file, not both")
        try:
            with open(file, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise RequestError(f"--file {file}: {error.strerror}") from None
    if prompt is None:
        raise typer.BadParameter("a prompt is needed (text, - for standard input, or --file)")
    return sys.stdin.buffer.read() if prompt == "-" else prompt


def size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError
