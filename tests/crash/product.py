"""The real `kaiwo up`, as the crash test starts and kills it, and HTTP to talk to it while it lives."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kaiwo.clusters.local import supervisor
from kaiwo.clusters.local.run_folder import RunFolder
from tests.waiting import PATIENCE_S

CLUSTER = "nodes: [{name: node, count: 3, gpus: 4}]\n"
SPEED = 20  # virtual seconds in a second
START_S = PATIENCE_S


class GoneError(Exception):
    """Nobody answers any more."""


class Product:
    """One life after the other, in one home."""

    def __init__(self, home: Path, env: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> None:
        self.home = home
        self._env, self._options = env or {}, options
        self._log = home.with_name(home.name + ".log")
        self._cluster = home.with_name(home.name + ".yaml")
        self._cluster.write_text(CLUSTER)
        self._port = 0
        self._token = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self, does_wait: bool = True) -> None:
        """Begin a life; `does_wait`: until it answers."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAIWO_")}
        command = [sys.executable, "-m", "kaiwo.cli.main", "up", "--port", "0", "--speed", str(SPEED)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--cluster-file", str(self._cluster), *self._options],
                env={**kept, **self._env, "KAIWO_HOME": str(self.home)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        if does_wait:
            self._hear()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def refusal(self) -> str:
        """Begin a life, and return why it ended at once; empty: it lives."""
        before = self._log.stat().st_size
        self.start(does_wait=False)
        assert self._process is not None
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            self._read_address(line)
            return ""
        assert self._process.wait() != 0
        return self._log.read_text()[before:]

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.poll() is None, "it died by itself"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def stop(self) -> None:
        """As Ctrl-C would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=START_S)
        assert self._process.returncode == 0

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request, text as YAML and the rest as JSON: the status and the answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/yaml" if isinstance(body, str) else "application/json"
        sent = body if isinstance(body, str) or body is None else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=START_S)
        try:
            connection.request(method, f"/api/v1{path}", sent, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise GoneError from error
        finally:
            connection.close()

    def names(self, *states: str) -> list[str]:
        """The workloads in these states."""
        status, page = self.ask("GET", f"/workloads?limit=500&sort=name&state={','.join(states)}")
        assert status == 200, page
        return [item["name"] for item in page["items"]]

    def _hear(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._read_address(self._process.stdout.readline())

    def _read_address(self, line: str) -> None:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"kaiwo up said {line!r}; see {self.home}.log"
        self._port = int(found[1])
        self._token = (self.home / "token").read_text().strip()


def supervisors(home: Path) -> dict[int, RunFolder]:
    """The supervisors of a home that live now, by pid, each with its run."""
    found: dict[int, RunFolder] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if supervisor.__file__ in words:
            folder = Path(words[words.index(supervisor.__file__) + 1])
            if folder.parent == home / "runs":
                found[pid] = RunFolder(folder)
    return found


def wait_for_no_supervisors(home: Path) -> None:
    """A supervisor ends a moment after it wrote down the end of its run."""
    deadline = time.monotonic() + START_S
    while supervisors(home):
        assert time.monotonic() < deadline, "a supervisor outlives its run"
        time.sleep(0.02)
