"""Whatever the OpenAPI document allows, and much that it does not: no answer is a fault of the server."""

import os
import pathlib
import subprocess
import sys


def test_no_request_is_a_fault_of_the_server(server):
    schemathesis = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [schemathesis, "run", server.url + "/openapi.json", "--checks", "not_a_server_error"]
    # The tiny model knows no infill, which is an honest 501.
    command += ["--exclude-path", "/infill", "--max-examples", os.environ.get("EXAMPLES", "15"), "--seed", "1"]
    command += ["--request-timeout", "60", "-H", f"Authorization: Bearer {server.key}"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
