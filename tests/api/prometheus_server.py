"""A real Prometheus that scrapes a running Kaiwo every second with its token, and evaluates the shipped rules."""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from tests.api.test_alert_rules import RULES
from tests.api.world import World
from tests.waiting import until_answer

PROGRAM = shutil.which("prometheus")
MISSING = "no Prometheus here (Debian: sudo apt-get install prometheus)"


class Prometheus:
    def __init__(self, api: str) -> None:
        self._api = api

    async def ask(self, path: str, **query: str) -> Any:
        """The data of the answer; nothing while it does not answer. An invalid query fails."""
        return await asyncio.to_thread(self._ask, path, query)

    async def values(self, query: str) -> list[str]:
        return [each["value"][1] for each in (await self.ask("query", query=query))["result"]]

    def _ask(self, path: str, query: dict[str, str]) -> Any:
        try:
            with urllib.request.urlopen(f"{self._api}/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it begins
                return {"result": []}
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from error
        except OSError:
            return {"result": []}


@contextlib.asynccontextmanager
async def prometheus_of(it: World, folder: Path) -> AsyncIterator[Prometheus]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in RULES],
        "scrape_configs": [{
            "job_name": "kaiwo",
            "authorization": {"credentials_file": str(folder / "metrics-token")},
            "static_configs": [{"targets": [it.url.removeprefix("http://")]}],
        }],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    assert PROGRAM is not None
    command = [
        PROGRAM, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    found = Prometheus(f"http://{address}/api/v1")
    try:
        await until_answer(lambda: found.values("up == 1"), bool, "the first scrape")
        yield found
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)
