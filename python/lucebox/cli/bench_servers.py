"""lucebox bench --url: the speed of servers over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lucebox.cli import common
from lucebox.errors import RequestError


def bench(
    urls: Sequence[str],
    api_key: str,
    names: Sequence[str] | None,
    tokens: int | None,
    rounds: int | None,
    *,
    local: Mapping[str, Any],
    json: bool,
) -> None:
    """local: options that were given and say nothing about a server."""
    from lucebox.bench_url import report
    from lucebox.bench_url.client import Server
    from lucebox.bench_url.run import run
    from lucebox.bench_url.scenarios import scenarios

    useless = [name for name, value in local.items() if value is not None]
    if useless:
        raise RequestError(f"{', '.join(useless)}: not with --url; the server was started with its own")
    known = scenarios(tokens)
    unknown = set(names or ()) - {scenario.name for scenario in known}
    if unknown:
        listed = ", ".join(repr(scenario.name) for scenario in known)
        raise RequestError(f"--scenario {', '.join(sorted(unknown))}: known are {listed}")
    chosen = [scenario for scenario in known if not names or scenario.name in names]
    found = run([Server(url, api_key) for url in urls], chosen, rounds=rounds or 3, say=_say)
    if json:
        common.write_json({"cpus": os.cpu_count(), **found})
    else:
        report.show(found, common.console())


def _say(text: str) -> None:
    common.note(f"{text} ...")
