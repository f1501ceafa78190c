"""What a flood on the webhooks' port does to a real `kaiwo scheduler` on a real API server.

In:    10,000 connections a minute, 2,000 half-open ones, bodies of 7.8 MB, slow senders and readers, from one address;
       beside it, pods that are really reviewed, and a leader that must renew its Lease.
Out:   the lag of the scheduler's event loop, the longest pause between two renewals of the Lease, how often the leader
       changed, the answers to genuine reviews and their times, and memory.
Needs: the test control plane with helm (`make controlplane`).
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from tests.clusters.kubernetes.installed_webhooks import CERTIFICATE_OF, TRUSTED, Installed, installed, pod
from tests.clusters.kubernetes.replicas import Replica, replica
from tests.conftest import ROOT
from tests.controlplane.plane import MissingError, find_programs, running_plane
from tests.waiting import PATIENCE_S

SECONDS = 60.0
STRANGER = "127.0.0.2"
NAMESPACE = "t-flood"
LAG_MS, LEASE_GAP_S, RSS_MB = 50.0, 5.0, 400.0
REVIEWS_A_SECOND = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--source", default=STRANGER, help="address of the flood; 127.0.0.1 is that of the API server")
    options = parser.parse_args()
    try:
        find_programs("helm")
    except MissingError as error:
        print(error, file=sys.stderr)
        return 3
    with (
        tempfile.TemporaryDirectory() as folder,
        running_plane(Path(folder) / "plane") as plane,
        installed(plane, NAMESPACE, "--set=webhooks.failurePolicy=Fail") as site,
    ):
        result = asyncio.run(measure(site, Path(folder), options.seconds, options.source))
    print(json.dumps(result, indent=None if options.json else 2))
    missed = misses(result)
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def misses(result: dict[str, Any]) -> list[str]:
    bounds = (("lag_p99_ms", LAG_MS), ("lease_gap_s", LEASE_GAP_S), ("leader_changes", 0), ("rss_mb", RSS_MB))
    return [f"{name} is {result[name]}, at most {most} is due" for name, most in bounds if result[name] > most]


async def measure(site: Installed, home: Path, seconds: float, source: str) -> dict[str, Any]:
    client = Client(read_kubeconfig(site.plane.kubeconfig))
    try:
        with started(site, home / "kaiwo") as kaiwo:
            await asyncio.to_thread(wait_until_up, kaiwo)
            await until_reviewed(client)
            await until_leading(kaiwo)
            quiet = await observe(site, kaiwo, client, min(10.0, seconds))
            with flooded(site.port, seconds, source) as attackers:
                found = await observe(site, kaiwo, client, seconds)
                done = {
                    kind: json.loads((await asyncio.to_thread(each.communicate))[0]) for kind, each in attackers.items()
                }
            await until_reviewed(client)
            log_kb = round(sum(map(len, kaiwo.log())) / 1000, 1)
            return {"seconds": seconds, "source": source, **found, "log_kb": log_kb, "quiet": quiet, "flood": done}
    finally:
        await client.close()


@contextlib.contextmanager
def flooded(port: int, seconds: float, source: str) -> "Iterator[dict[str, subprocess.Popen[str]]]":
    """Two processes, so that neither kind of attack slows the other down."""
    command = [sys.executable, "-m", "bench._webhook_flood", str(port), str(seconds), source]
    attackers = {
        kind: subprocess.Popen([*command, kind], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for kind in ("connections", "requests")
    }
    try:
        yield attackers
    finally:
        for each in attackers.values():
            each.kill()
            each.wait()


@contextlib.contextmanager
def started(site: Installed, home: Path, *more: str) -> Iterator[Replica]:
    options = [f"--trusted-controller={name}" for name in TRUSTED]
    where = (f"--lease-namespace={site.namespace}", f"--webhooks={CERTIFICATE_OF}", f"--webhook-port={site.port}")
    with replica(site.plane, home, *where, *options, *more) as found:
        yield found


def wait_until_up(kaiwo: Replica) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not kaiwo.is_up:
        assert kaiwo.process.poll() is None, kaiwo.log()
        assert time.monotonic() < deadline_s, "the scheduler did not start"
        time.sleep(0.1)


async def review(client: Client) -> None:
    """A pod that is not stored; ApiError where it is refused or not reviewed."""
    body = msgspec.json.encode(pod("brought", "default", "kaiwo-scheduler"))
    await client.write("POST", "/api/v1/namespaces/default/pods", body, params={"dryRun": "All"}, tries=1)


async def until_reviewed(client: Client) -> None:
    """An API server takes a moment to learn whom to trust."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await review(client)
        except (ApiError, UnreachableError):
            assert time.monotonic() < deadline_s, "no review was answered"
            await asyncio.sleep(0.1)


async def until_leading(kaiwo: Replica) -> None:
    """A leader that was killed holds the Lease for some seconds more."""
    deadline_s = time.monotonic() + PATIENCE_S
    while await asyncio.to_thread(kaiwo.metric, "kaiwo_leader") != 1:
        assert time.monotonic() < deadline_s, "the scheduler does not lead"
        await asyncio.sleep(0.1)


async def observe(site: Installed, kaiwo: Replica, client: Client, seconds: float) -> dict[str, Any]:
    until_s = time.monotonic() + seconds
    first = await read_lease(site, client)
    (reviews, gap_s, rss_mb) = await asyncio.gather(
        bring(client, until_s), watch_lease(site, client, until_s), watch_memory(kaiwo, until_s)
    )
    last = await read_lease(site, client)
    metrics = await asyncio.to_thread(kaiwo.ask, "/metrics")
    lag = {line.split('"')[1]: float(line.split()[-1]) for line in metrics.splitlines() if "loop_lag_seconds{" in line}
    return {
        "lag_p99_ms": round(1000 * lag["0.99"], 1),
        "lag_worst_ms": round(1000 * lag["1"], 1),
        "lease_gap_s": round(gap_s, 2),
        "leader_changes": last["leaseTransitions"] - first["leaseTransitions"],
        **reviews,
        "rss_mb": round(rss_mb),
    }


async def bring(client: Client, until_s: float) -> dict[str, Any]:
    took_s, failed = [], 0

    async def one() -> None:
        nonlocal failed
        began = time.monotonic()
        try:
            await review(client)
            took_s.append(time.monotonic() - began)
        except (ApiError, UnreachableError):
            failed += 1

    tasks = []
    while time.monotonic() < until_s:
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / REVIEWS_A_SECOND)
    await asyncio.gather(*tasks)
    took_s.sort()
    p99_ms = round(1000 * took_s[int(0.99 * len(took_s))]) if took_s else None
    return {"reviews_answered": len(took_s), "reviews_failed": failed, "review_p99_ms": p99_ms}


async def read_lease(site: Installed, client: Client) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases/kaiwo-scheduler"
    spec = msgspec.json.decode(await client.read(path))["spec"]
    return dict(spec)


async def watch_lease(site: Installed, client: Client, until_s: float) -> float:
    """The longest time without a renewal."""
    renewed, at_s, longest_s = "", time.monotonic(), 0.0
    while (now_s := time.monotonic()) < until_s:
        found = (await read_lease(site, client))["renewTime"]
        if found != renewed:
            renewed, at_s = found, now_s
        longest_s = max(longest_s, now_s - at_s)
        await asyncio.sleep(0.1)
    return longest_s


async def watch_memory(kaiwo: Replica, until_s: float) -> float:
    """The most that the scheduler and its processes had together."""
    most = 0.0
    while time.monotonic() < until_s:
        most = max(most, sum(map(resident_mb, (kaiwo.process.pid, *children(kaiwo.process.pid)))))
        await asyncio.sleep(0.5)
    return most


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def resident_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
