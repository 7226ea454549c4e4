"""A server for the tests: the tiny model of the repository, on a free port."""

import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest

MODEL = pathlib.Path(__file__).parents[2] / "models" / "kjv-tiny-Q4_K_M.gguf"


class Server:
    """`qgguf serve` with a key; `url` is where it listens."""

    key = "sesame"

    def __init__(self, *flags):
        command = [os.environ["QGGUF"], "serve", "-m", str(MODEL), "--port", "0", "--api-key", self.key, "-a", "kjv"]
        self.process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"http://[\d.]+:\d+", line):
                self.url = found.group()
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        self.log.extend(self.process.stderr)

    def stop(self):
        """Ends the server as an orchestrator would; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="session")
def server():
    server = Server("--metrics", "-c", "4096", "-np", "4")
    yield server
    assert server.stop() == 0, "".join(server.log)
