"""schemathesis makes requests from the served OpenAPI document, valid ones and others; none may end in a 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import served as process

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize("examples", [15])
def test_no_request_is_a_server_error(examples: int, tmp_path: Path) -> None:
    """A short context, so that generated requests without a limit end soon."""
    with process.serve("--slots", "2", "--max-ctx", "96", "--max-tokens", "4") as served:
        # It keeps its cache where it runs.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "schemathesis.cli", "run", served.url + "/openapi.json", "--seed", "1"]
        options = ["--checks", CHECKS, "--max-examples", str(examples), "--phases", "examples,fuzzing", "--no-color"]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert served.metric("lucebox_engine_faults_total") == 0
        assert not any("Traceback" in line for line in served.log)
