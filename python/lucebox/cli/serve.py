"""lucebox serve: the OpenAI-compatible server."""

from __future__ import annotations

from typing import Annotated

import typer

from lucebox.cli import common
from lucebox.errors import RequestError


@common.guarded
def serve(
    model: Annotated[str | None, typer.Argument(help='GGUF file, or "nano". Default: LUCEBOX_MODEL or nano.')] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 = one that is free.")] = 8080,
    alias: Annotated[str | None, typer.Option("--alias", "-a", help="The model's name in answers.")] = None,
    slots: Annotated[
        int, typer.Option("--slots", "--parallel", "-np", min=1, max=8, help="Requests that run at once.")
    ] = 4,
    max_ctx: common.CtxOption = None,
    api_key: Annotated[
        list[str] | None, typer.Option("--api-key", help="Keys that are let in, separated by commas.")
    ] = None,
    api_key_file: Annotated[str | None, typer.Option("--api-key-file", help="A file with one key a line.")] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests that may wait.")] = 64,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds a request may take; 0 = no limit.")] = 0,
    drain: Annotated[
        float, typer.Option("--drain", min=0, help="Seconds that running requests get after SIGTERM.")
    ] = 30,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "--n-predict", "-n", min=-1, help="Of requests that name no number.")
    ] = -1,
    thinking: Annotated[
        bool | None, typer.Option("--thinking/--no-thinking", help="Of requests that do not say.")
    ] = None,
    cors_origins: Annotated[
        str, typer.Option("--cors-origins", help='URLs, "localhost" or "*", separated by commas.')
    ] = "localhost",
    strict_model: Annotated[
        bool, typer.Option("--strict-model", help="404 for requests that name another model.")
    ] = False,
    metrics: Annotated[bool, typer.Option("--metrics/--no-metrics", help="Serve /metrics.")] = True,
    metrics_compat: Annotated[
        bool, typer.Option("--metrics-compat", help="Metrics under the names of llama.cpp, too.")
    ] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as one JSON object a line.")] = False,
    draft: common.DraftOption = None,
    draft_block_size: common.DraftBlockOption = None,
    speculative: common.SpeculativeOption = "match",
    lookup: common.LookupOption = True,
    kv: common.KvOption = "q8_0",
    cache_type_k: Annotated[
        str | None, typer.Option("--cache-type-k", "-ctk", help="As --kv, under llama.cpp's name.")
    ] = None,
    cache_type_v: Annotated[
        str | None, typer.Option("--cache-type-v", "-ctv", help="As --kv; K and V have one type here.")
    ] = None,
    threads: common.ThreadsOption = None,
    variant: common.VariantOption = "auto",
    device: common.DeviceOption = "auto",
    launch: common.LaunchOption = "auto",
) -> None:
    """Serve the model over HTTP to clients of OpenAI's API; docs/server.md has the routes and fields."""
    from lucebox.server.config import ServerConfig
    from lucebox.server.run import serve

    config = ServerConfig(
        host=host,
        port=port,
        alias=alias,
        strict_model=strict_model,
        api_keys=_keys(api_key, api_key_file),
        cors_origins=tuple(filter(None, map(str.strip, cors_origins.split(",")))),
        queue=queue,
        timeout=timeout,
        drain=drain,
        default_max_tokens=max_tokens,
        thinking=thinking,
        speculative=speculative,
        lookup=lookup,
        metrics=metrics,
        metrics_compat=metrics_compat,
        log_json=log_json,
    )
    with common.load(
        model,
        max_ctx=max_ctx,
        kv=_kv(kv, cache_type_k, cache_type_v),
        threads=threads,
        variant=variant,
        device=device,
        launch=launch,
        slots=slots,
        draft=draft,
        draft_block_size=draft_block_size,
    ) as engine:
        code = serve(engine, config)
    if code:
        raise typer.Exit(code)


def _keys(given: list[str] | None, file: str | None) -> tuple[str, ...]:
    keys = [key.strip() for text in given or () for key in text.split(",")]
    if file is not None:
        try:
            with open(file, encoding="utf-8") as stream:
                keys += [line.strip() for line in stream if line.strip()]
        except OSError as error:
            raise RequestError(f"--api-key-file {file}: {error.strerror}") from None
        if not keys:
            raise RequestError(f"--api-key-file {file}: there is no key in it")
    return tuple(keys)


def _kv(kv: str, k: str | None, v: str | None) -> str:
    given = {name for name in (k, v) if name is not None}
    if len(given) > 1:
        raise RequestError(f"--cache-type-k {k}, --cache-type-v {v}: K and V have one type here")
    return given.pop() if given else kv
