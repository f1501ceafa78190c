"""Real `kaiwo scheduler` processes beside each other, and what they say of themselves."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kaiwo.api.security.token_file import read_or_make_token
from kaiwo.app.http_server import SERVER_FILE
from tests.controlplane.plane import Plane

GOODBYE_S = 15


class Replica:
    """One process with a home of its own."""

    def __init__(self, plane: Plane, home: Path, *options: str) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        words = ["scheduler", "--kubeconfig", str(plane.kubeconfig), "--port", "0", *options]
        with (home / "stderr.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kaiwo.cli.main", *words],
                env=os.environ | {"KAIWO_HOME": str(home)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def is_up(self) -> bool:
        """It serves, so its caches are warm."""
        return (self.home / SERVER_FILE).exists()

    def ask(self, path: str) -> str:
        url = msgspec.json.decode((self.home / SERVER_FILE).read_bytes())["url"]
        request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read().decode()

    def change(self, path: str, body: str = "{}") -> int:
        """POST; the status of the answer."""
        url = msgspec.json.decode((self.home / SERVER_FILE).read_bytes())["url"]
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.ask("/metrics"), re.MULTILINE)
        assert found, f"there is no metric {name}"
        return float(found[1])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(GOODBYE_S)

    def log(self) -> list[str]:
        return (self.home / "stderr.log").read_text().splitlines()

    @property
    def _token(self) -> str:
        return read_or_make_token(str(self.home))[0]


@contextlib.contextmanager
def replica(plane: Plane, home: Path, *options: str) -> Iterator[Replica]:
    """Gone at the end of the block, whatever became of it."""
    found = Replica(plane, home, *options)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.send_signal(signal.SIGCONT)
            found.process.terminate()
            try:
                found.process.wait(GOODBYE_S)
            finally:
                found.process.kill()
