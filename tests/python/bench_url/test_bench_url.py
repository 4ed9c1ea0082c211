"""`lucebox bench --url` against a server process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import served as process
from lucebox.bench_url.client import Server
from lucebox.bench_url.scenarios import filler, scenarios
from lucebox.cli.app import app
from lucebox.errors import RequestError
from served import Served
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with process.serve("--slots", "4", "--max-ctx", "3000") as server:
        yield server


def test_a_report_of_two_servers(served: Served) -> None:
    """The same server twice: equal texts, a ratio, and a scenario that does not fit is said to be refused."""
    arguments = ["bench", "--url", served.url, "--url", served.url + "/v1", "-r", "1", "-n", "4"]
    chosen = ["--scenario", "2K x 1", "--scenario", "8K x 1", "--scenario", "chat"]
    done = CliRunner().invoke(app, [*arguments, *chosen, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert [server["model"] for server in report["servers"]] == ["nano", "nano"]
    assert len(report["results"]) == 6
    by_name: dict[str, list[dict[str, object]]] = {}
    for result in report["results"]:
        by_name.setdefault(result["scenario"], []).append(result)
    assert all("context" in str(result["refused"]) for result in by_name["8K x 1"])
    for name in ("2K x 1", "chat"):
        first, second = by_name[name]
        assert first["texts_sha256"] == second["texts_sha256"] and first["tokens"] == 4
        assert all(first[figure]["median"] > 0 for figure in ("ttft_s", "decode_tok_per_s", "total_tok_per_s"))  # type: ignore[index]
    assert 1800 < by_name["2K x 1"][0]["prompt_tokens"] < 2200  # type: ignore[operator]
    table = CliRunner().invoke(app, [*arguments, "--scenario", "chat"])
    assert table.exit_code == 0 and "decode ratio" in table.stdout and "total tok/s" in table.stdout


def test_what_is_refused(served: Served) -> None:
    for arguments, text in (
        (["--threads", "2"], "--threads: not with --url"),
        (["--scenario", "none"], "known are '2K x 1'"),
    ):
        done = CliRunner().invoke(app, ["bench", "--url", served.url, *arguments])
        assert done.exit_code == 1 and text in done.output
    with pytest.raises(RequestError, match="no answer"):
        Server("http://127.0.0.1:1").connect()
    with pytest.raises(RequestError, match="an http or https address"):
        Server("ftp://x")


def test_no_two_prompts_begin_alike() -> None:
    prompts = [filler(2000)(i, 4.0)["prompt"] for i in range(40)]
    assert len({prompt[:10] for prompt in prompts}) == 40
    assert filler(2000)(3, 4.0) == filler(2000)(3, 4.0)
    assert [scenario.name for scenario in scenarios()] == ["2K x 1", "2K x 4", "2K x 8", "8K x 1", "chat", "code"]
