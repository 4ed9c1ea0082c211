"""lucebox generate: continue a text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lucebox.cli import common

if TYPE_CHECKING:
    from lucebox.engine import Engine
    from lucebox.generation import Generation, Piece


@common.guarded
def generate(
    prompt: Annotated[str | None, typer.Argument(help="The text to continue; - reads standard input.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="Read the prompt from this file.")] = None,
    model: common.ModelOption = None,
    max_tokens: common.MaxTokensOption = 256,
    max_ctx: common.CtxOption = None,
    threads: common.ThreadsOption = None,
    temperature: Annotated[
        float, typer.Option("--temperature", "--temp", min=0.0, help="0 = greedy: always the likeliest token.")
    ] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Candidates that are kept; 0 = all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Probability that is kept; 1 = all.")] = 1.0,
    min_p: Annotated[float, typer.Option("--min-p", help="Share of the best probability needed; 0 = none.")] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option("--repeat-penalty", min=0.0, help="Of tokens that have occurred; 1 = off.")
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option("--presence-penalty", help="Of tokens that the reply has; 0 = off.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option("--frequency-penalty", help="Likewise, for each time; 0 = off.")
    ] = 0.0,
    seed: common.SeedOption = None,
    stop: common.StopOption = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after an end token.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Texts of control tokens in the prompt are plain text.")
    ] = False,
    echo: Annotated[bool, typer.Option("--echo", help="Print the prompt in front of the reply.")] = False,
    draft: common.DraftOption = None,
    draft_block_size: common.DraftBlockOption = None,
    speculative: common.SpeculativeOption = "match",
    lookup: common.LookupOption = True,
    kv: common.KvOption = "q8_0",
    variant: common.VariantOption = "auto",
    device: common.DeviceOption = "auto",
    launch: common.LaunchOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """Continue a text; tokens are printed as they come, a line with the speed follows on standard error."""
    text = common.read_prompt(prompt, file)
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
        with engine.generate(
            text,
            max_tokens=common.token_limit(max_tokens),
            stop=stop or (),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            ignore_eos=ignore_eos,
            speculative=speculative,
            lookup=lookup,
            special=not plain,
        ) as reply:
            if echo and not json:
                common.write(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))
            last = _print_reply(reply, json)
        if last is not None and not json:
            common.note(f"\n\n{speed(last, engine)}" + ("" if temperature == 0 else f" · seed {reply.seed}"))


def _print_reply(reply: Generation, json: bool) -> Piece | None:
    piece = None
    for piece in reply:
        if json:
            common.write_json(asdict(piece))
        else:
            common.write(piece.text)
    return piece


def speed(last: Piece, engine: Engine) -> str:
    """One line on how fast a reply came and why it ended."""
    timings = last.timings
    rate = f", {timings.generated_per_s:.1f} tok/s" if timings.generated_tokens > 1 else ""
    threads = f"{engine.threads} thread{'s' * (engine.threads != 1)}"
    return (
        f"{timings.generated_tokens} tokens{rate}{drafted(last)} · prompt {timings.prompt_tokens} tokens, "
        f"{timings.prompt_per_s:.1f} tok/s · {last.finish_reason} ({last.stopped_by!r}) · "
        f"{Path(engine.path).name}, {engine.device} {engine.variant}, {threads}, kv {engine.kv}"
    )


def drafted(last: Piece) -> str:
    """What speculation gave, where anything was drafted."""
    s = last.timings.speculation
    if s.drafted == 0:
        return ""
    sources = ", ".join(f"{name} {count}" for name, count in s.sources.items() if name != "none")
    ms = f"draft {s.draft_s / s.steps * 1e3:.1f} ms, verify {s.verify_s / s.steps * 1e3:.1f} ms a step"
    return f" ({s.tokens_per_step:.2f} a step, {s.accepted} of {s.drafted} drafts accepted; {sources}; {ms})"
