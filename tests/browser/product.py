"""The real product, as the browser tests start it: `kaiwo up` in a home of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.waiting import PATIENCE_S

KAIWO = str(Path(sys.executable).parent / "kaiwo")
START_S = PATIENCE_S


class Product:
    """One `kaiwo up`. It can be killed and started again on the same port and state."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._options = options
        self._log = home / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start, and wait until it answers. Returns when it was started, by the monotonic clock."""
        self.home.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [KAIWO, "up", "--port", str(self.port), *self._options],
                env=self._environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > began + START_S:
                raise RuntimeError(f"kaiwo up did not come up:\n{self._log.read_text()}")
            time.sleep(0.02)
        return began

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """As Ctrl-C would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def run(self, *words: str) -> str:
        """A command of the CLI against this product."""
        return run_kaiwo(self.home, *words)

    def new_login(self, after: str = "") -> str:
        """Another one-time address; `after`: what the page shows then, such as `#work=default/x`."""
        return self.run("login").strip() + after

    def login_of(self, name: str, role: str) -> str:
        """A one-time address for another person with this role."""
        made = json.loads(self.run("tokens", "create", name, "--role", role, "-o", "json"))
        bearer = {"Authorization": f"Bearer {made['secret']}"}
        asked = urllib.request.Request(f"{self.url}api/v1/logins", method="POST", headers=bearer)
        with urllib.request.urlopen(asked) as answer:
            return self.url.rstrip("/") + str(json.load(answer)["path"])

    def login_address(self) -> str:
        """The one-time address that `kaiwo up` printed."""
        found = re.search(r"http://\S+/login\?code=[\w-]+", self._log.read_text())
        assert found, f"kaiwo up printed no login address:\n{self._log.read_text()}"
        return found[0]

    def names(self, state: str) -> list[str]:
        """The workloads in a state, as the API lists them."""
        headers = {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}
        request = urllib.request.Request(f"{self.url}api/v1/workloads?state={state}&limit=500", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return [item["name"] for item in json.load(answer)["items"]]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _environment(self) -> dict[str, str]:
        return _environment(self.home)


def run_kaiwo(home: Path, *words: str) -> str:
    """A command of the CLI against whatever runs in this home."""
    done = subprocess.run(
        [KAIWO, *words], env=_environment(home), cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"kaiwo {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAIWO_")}
    return {**kept, "KAIWO_HOME": str(home)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
