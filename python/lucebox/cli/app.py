"""The `lucebox` command."""

from __future__ import annotations

from typing import Annotated

import typer

from lucebox.cli import bench, chat, convert, doctor, generate, inspect, plan, quantize, selftest, serve

app = typer.Typer(
    name="lucebox",
    help="Run Qwen3.5, 3.6 and 3.8 models from stock GGUF files; the same bits on every backend.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        import lucebox

        print(f"lucebox {lucebox.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.command("serve")(serve.serve)
app.command("inspect")(inspect.inspect)
app.command("plan")(plan.plan)
app.command("doctor")(doctor.doctor)
app.command("convert")(convert.convert)
app.command("quantize")(quantize.quantize)
app.command("selftest")(selftest.selftest)
app.command("bench")(bench.bench)


def main() -> None:
    """Exit codes: 0 done, 1 error, 2 usage, 130 Ctrl-C."""
    app()
