"""Keep the last readings of exporters: start the process that scrapes them, read what it writes, start it again.

In:    a YAML file of targets.   Out: the last reading of each node, for the time series. An agent's report counts more.
Never: reads an exporter itself: what they send is parsed in the other process, and only typed numbers come here.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.telemetry.exporters.gpu_readings import GpuReading
from kaiwo.telemetry.exporters.scrape import NodeReading, ScrapeJob, ScrapeTarget, sends_in_the_clear

STALE_PARTS = 3  # a reading counts for so many intervals
MAX_LINE = 1 << 20
MAX_TARGETS = 5_000
AGAIN_S, MOST_AGAIN_S = 1.0, 60.0


NO_JOB = ScrapeJob((), 10.0, 5.0)


class TargetEntry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    url: str  # `{node}` stands for the name of each node
    nodes: tuple[str, ...]
    token_file: str = ""
    ca_file: str = ""


class ExporterFile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    exporters: tuple[TargetEntry, ...] = ()
    every_s: int = 10
    timeout_s: int = 5


def load_exporters(path: str) -> ScrapeJob:
    """ConfigError with what is wrong in the file."""
    import yaml  # most do not have such a file

    try:
        file = msgspec.convert(yaml.safe_load(Path(path).read_bytes()) or {}, ExporterFile)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); name a file with exporters", "exporters"
        ) from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", "exporters") from error
    if not (1 <= file.every_s <= 3600 and 1 <= file.timeout_s <= 60):
        raise ConfigError(f"{path}: everyS must be 1 to 3600, and timeoutS 1 to 60", "exporters")
    targets: dict[str, ScrapeTarget] = {}
    for entry in file.exporters:
        for node in entry.nodes:
            target = ScrapeTarget(node, entry.url.replace("{node}", node), entry.token_file, entry.ca_file)
            if problem := _problem_of(target, node in targets):
                raise ConfigError(f"{path}: {problem}", "exporters")
            targets[node] = target
    if len(targets) > MAX_TARGETS:
        raise ConfigError(f"{path}: {len(targets):,} nodes are more than {MAX_TARGETS:,}", "exporters")
    return ScrapeJob(tuple(targets.values()), file.every_s, file.timeout_s)


def _problem_of(target: ScrapeTarget, is_twice: bool) -> str:
    try:
        parts = urlsplit(target.url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address or not target.url.isprintable():
        return f"'{target.url}' is not an address; write it like http://node-1:9400/metrics"
    if parts.username or parts.password:
        return f"the address of node {target.node} has a password in it; use tokenFile"
    if is_twice:
        return f"node {target.node} has two exporters; name it once"
    if target.token_file and sends_in_the_clear(target.url):
        return f"{target.url} gets a token that others could read on the way; use https://"
    return ""


class ExporterReadings:
    """Lives on the event loop."""

    def __init__(self, job: ScrapeJob, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._clock = job, clock
        self._nodes = {target.node for target in job.targets}
        self._last: dict[str, tuple[float, NodeReading]] = {}
        self.problems: dict[str, str] = {}  # by node
        self.restarts = 0

    def of_nodes(self) -> Mapping[str, tuple[GpuReading, ...]]:
        """Of each node whose exporter has answered lately."""
        oldest = self._clock() - STALE_PARTS * self._job.every_s
        return {node: reading.gpus for node, (at, reading) in self._last.items() if at >= oldest and reading.gpus}

    async def run(self) -> None:
        """Until cancelled. The process ends with this one, since its standard input is closed then."""
        again_s = AGAIN_S
        while self._nodes:
            began = self._clock()
            try:
                await self._follow()
            except Exception as error:  # the edge of the loop: without it, exporters would be silent for ever
                emit_limited("exporters-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])
            again_s = AGAIN_S if self._clock() - began > MOST_AGAIN_S else min(2 * again_s, MOST_AGAIN_S)
            self.restarts += 1
            await asyncio.sleep(again_s)

    async def _follow(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kaiwo.telemetry.exporters.scrape", limit=MAX_LINE,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(self._job) + b"\n")
            async for line in process.stdout:
                self._take(msgspec.json.decode(line, type=NodeReading))
            emit_limited("exporters-ended", level="warning", cause=f"status {await process.wait()}")
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _take(self, reading: NodeReading) -> None:
        if reading.node not in self._nodes:
            return
        if reading.gpus:
            self._last[reading.node] = self._clock(), reading
        if reading.problem and self.problems.get(reading.node) != reading.problem:
            emit("exporter-problem", level="warning", node=reading.node, problem=reading.problem)
        self.problems[reading.node] = reading.problem
