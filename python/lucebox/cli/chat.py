"""lucebox chat: a conversation in the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lucebox import sampling
from lucebox.cli import common
from lucebox.cli.generate import speed
from lucebox.engine import Engine
from lucebox.errors import ContextFullError
from lucebox.generation import Generation, Piece

HELP = "/clear forgets the conversation, /exit (or Ctrl-D) ends it, /help prints this; Ctrl-C stops a reply"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@common.guarded
def chat(
    model: common.ModelOption = None,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
    thinking: Annotated[
        bool | None, typer.Option("--thinking/--no-thinking", help="Default: what the model's template does.")
    ] = None,
    max_tokens: common.MaxTokensOption = -1,
    max_ctx: common.CtxOption = None,
    threads: common.ThreadsOption = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", "--temp", min=0.0, help="Default: the file's; 0 = greedy.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=0, help="Default: the file's; 0 = all.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Default: the file's; 1 = all.")] = None,
    min_p: Annotated[float | None, typer.Option("--min-p", help="Default: the file's; 0 = none.")] = None,
    seed: common.SeedOption = None,
    draft: common.DraftOption = None,
    draft_block_size: common.DraftBlockOption = None,
    speculative: common.SpeculativeOption = "match",
    lookup: common.LookupOption = True,
    kv: common.KvOption = "q8_0",
    variant: common.VariantOption = "auto",
    device: common.DeviceOption = "auto",
    launch: common.LaunchOption = "auto",
) -> None:
    """Talk to the model; /help lists what can be typed. Sampling is what the file advises unless options differ."""
    with common.load(
        model,
        max_ctx=max_ctx,
        kv=kv,
        threads=threads,
        variant=variant,
        device=device,
        launch=launch,
        draft=draft,
        draft_block_size=draft_block_size,
    ) as engine:
        options = engine.sampling_defaults(thinking=thinking is not False)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        options.update({name: value for name, value in given.items() if value is not None})
        options.update(seed=seed, thinking=thinking, max_tokens=common.token_limit(max_tokens))
        options.update(speculative=speculative, lookup=lookup)
        for key in sampling.unsupported(engine.metadata):
            common.note(f"the file's {key} has no counterpart here and is not used")
        if sys.stdin.isatty():
            # Gives the prompt line editing and a history.
            with suppress(ImportError):
                import readline  # noqa: F401
            common.note(f"{Path(engine.path).name}, context {engine.max_ctx} tokens. {HELP}")
        _converse(engine, system, options)


def _converse(engine: Engine, system: str | None, options: dict[str, Any]) -> None:
    start = [] if system is None else [{"role": "system", "content": system}]
    messages = list(start)
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        if line == "/exit":
            return
        if line == "/clear":
            messages = list(start)
            common.note("cleared")
        elif line == "/help":
            common.note(HELP)
        elif line.startswith("/") and " " not in line:
            common.note(f"{line} is no command. {HELP}")
        elif line:
            messages.append({"role": "user", "content": line})
            try:
                messages.append(_answer(engine, messages, options))
            except ContextFullError as error:
                messages.pop()
                common.note(f"{error}\n/clear makes room" if len(messages) > len(start) else str(error))


def _answer(engine: Engine, messages: list[dict[str, str]], options: dict[str, Any]) -> dict[str, str]:
    """Prints a reply and returns it as a message; Ctrl-C ends it early and keeps what was said."""
    with engine.generate(messages, **options) as reply:
        said, last = _print_reply(reply)
    common.write("\n")
    if last is not None:
        common.note(f"[{speed(last, engine)}]")
    return said


def _print_reply(reply: Generation) -> tuple[dict[str, str], Piece | None]:
    color = sys.stdout.isatty()
    reasoning = content = ""
    last = None
    try:
        for last in reply:
            if last.reasoning:
                common.write(DIM * color + last.reasoning + PLAIN * color)
            if last.text:
                if reasoning and not content:
                    common.write("\n\n")
                common.write(last.text)
            reasoning += last.reasoning
            content += last.text
    except KeyboardInterrupt:
        common.note("\n(stopped)")
    message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    return message, last
