"""Shares of a real NVIDIA GPU: 0.3 and 0.7 side by side under MPS and by turns, and attempts to break out of it.

In:    a machine with an NVIDIA GPU, as root.   Out: ratios, limits, verdicts, the cost of the agent.
Never: measures a made-up GPU. Where there is none it says so and has nothing to report.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

from bench._agent_cost import agent_cost
from bench._container_tenants import two_users
from bench._cuda import BLOCKS_A_UNIT
from bench._gpu_tenants import ended, environment, finish, neighbour, start, tenant
from bench._isolation_attacks import EscapeAttempts
from bench._nvidia_smi import disagreements, driver_version
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sampling.sampler import Sampler
from kaiwo.devices.sharing.mps import DEFAULT, set_compute_mode
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, Refusal
from kaiwo.model.gpus.gpu import Share

SMALL, LARGE, EQUAL = 300, 700, 400
MAX_OFF = 0.15
ROUNDS, SECONDS, START_S = 3, 3.0, 3.0
MAX_AGENT_PERCENT = 1.0
LIMITS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "KAIWO_GPU_ISOLATION")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--agent-seconds", type=float, default=30.0)
    options = parser.parse_args()
    inventory = discover()
    gpu = next((gpu for gpu in inventory.gpus if gpu.vendor == "nvidia" and not gpu.partitions), None)
    if gpu is None:
        why = "there is no NVIDIA GPU on this machine, so nothing was measured"
        print(json.dumps({"is_measured": False, "why": why}))
        return 0
    result = measure(inventory, gpu.id, options.agent_seconds)
    print(json.dumps(result))
    for miss in result["missed"]:
        print(miss, file=sys.stderr)
    return 1 if result["missed"] else 0


def measure(inventory: Inventory, gpu: str, agent_s: float) -> dict[str, Any]:
    product = next(found.product for found in inventory.gpus if found.id == gpu)
    result: dict[str, Any] = {"is_measured": True, "gpu": product, "driver": driver_version()}
    result["discovery_differs_from_nvidia_smi"] = disagreements(inventory)
    with tempfile.TemporaryDirectory(prefix="kaiwo") as folder:
        bench = Bench(GpuSharing(folder, inventory), inventory, gpu)
        result["alone_launches_per_s"] = round(bench.alone(), 1)
        for method in ("mps", "time-slicing"):
            result[method] = bench.pair(method)
        result["service"] = bench.service(inventory)
    result["agent"] = agent_cost(agent_s)
    result["missed"] = missed(result)
    return result


class Bench:
    """One GPU and what is tried on it."""

    def __init__(self, sharing: GpuSharing, inventory: Inventory, gpu: str) -> None:
        self.sharing = sharing
        self.sampler = Sampler(inventory)
        self.gpu = next(found for found in inventory.gpus if found.id == gpu)
        self.gpus = sum(found.vendor == "nvidia" for found in inventory.gpus)
        self.blocks = self.gpu.compute_units * BLOCKS_A_UNIT

    def grant(self, name: str, milli: int, isolation: str = "") -> Grant:
        share = Share(self.gpu.id, milli, self.gpu.memory_mib * milli // 1000)
        found = self.sharing.prepare(GrantRequest(name, (share,), isolation))
        if isinstance(found, Refusal):
            raise SystemExit(found.reason)
        return found

    def alone(self) -> float:
        grant = self.grant("alone", 1000)
        rate = self.together([grant])[0]["launches_per_s"]
        self.sharing.release("alone")
        return float(rate)

    def together(self, grants: list[Grant]) -> list[dict[str, Any]]:
        """Tenants that compute in the same seconds, and what the agent sees of them meanwhile."""
        begin = time.time() + START_S
        words = ("spin", str(begin), str(begin + SECONDS), str(self.blocks))
        tenants = [start(environment(grant), *words) for grant in grants]
        while time.time() < begin + SECONDS * 0.8:
            time.sleep(0.1)
        uses = {use.pid: use for gpu in self.sampler.sample(time.time()).gpus for use in gpu.processes}
        answers = [finish(process) for process in tenants]
        for answer in answers:
            use = uses.get(answer.get("pid", 0))
            answer["seen"] = {"memory_mib": use.memory_mib, "busy_percent": use.busy_percent} if use else None
            if "error" in answer or answer["is_late"]:
                raise SystemExit(f"a tenant did not compute: {answer}")
        return answers

    def pair(self, method: str) -> dict[str, Any]:
        """Everything about two tenants under one method."""
        small, large = self.grant("small", SMALL, method), self.grant("large", LARGE, method)
        answers = [self.together([small, large]) for _ in range(ROUNDS)]
        rounds = [[one["launches_per_s"] for one in pair] for pair in answers]
        ratios = [mine / theirs for mine, theirs in rounds]
        daemon = self.sharing.daemon_of(small) if method == "mps" else None
        ways = EscapeAttempts(small, large, daemon, self.gpus)
        result = {
            "grade": small.grade,
            "environment": {name: small.environment[name] for name in LIMITS if name in small.environment},
            "launches_per_s": [[round(rate, 1) for rate in pair] for pair in rounds],
            "ratios": [round(ratio, 4) for ratio in ratios],
            "asked_ratio": round(SMALL / LARGE, 4),
            "farthest_off": round(max(abs(ratio * LARGE / SMALL - 1) for ratio in ratios), 4),
            "seen_by_agent": [one["seen"] for one in answers[-1]],
            "memory": self.memory(small),
            "ways_out": ways.try_all(),
        }
        if daemon:
            result["two_users"] = two_users(small, large, self.blocks)
            set_compute_mode(self.gpu.serial, DEFAULT)  # as where Kaiwo is not root
            is_held, seen = ways.leave_service()
            result["leave_service_without_root"] = {"verdict": "held" if is_held else "open", "seen": seen}
        self.sharing.release("small")
        self.sharing.release("large")
        if daemon:
            result["equal_shares"] = self.equal_shares()
        return result

    def equal_shares(self) -> dict[str, Any]:
        """Without its variables a client gets what the largest share has: among equals, its own."""
        mine, theirs = (self.grant(name, EQUAL, "mps") for name in ("mine", "theirs"))
        ways = EscapeAttempts(mine, theirs, self.sharing.daemon_of(mine), self.gpus)
        tried = {"memory-variable": ways.memory_variable(), "more-threads": ways.more_threads()}
        self.sharing.release("mine")
        self.sharing.release("theirs")
        return {way: {"verdict": "held" if is_held else "open", "seen": seen} for way, (is_held, seen) in tried.items()}

    def memory(self, grant: Grant) -> dict[str, Any]:
        limit = grant.held[0].mib
        below, above = str(limit * 9 // 10), str(limit + 1024)
        answers = tenant(environment(grant), "allocate", below, above)["allocated"]
        filled = tenant(environment(grant), "fill", str(2 * limit))["got_mib"]
        return {"limit_mib": limit, "below": answers[below], "above": answers[above], "in_pieces_mib": filled}

    def service(self, inventory: Inventory) -> dict[str, Any]:
        """The daemon's life: started, adopted by another Kaiwo, killed, started again."""
        began = time.perf_counter()
        grant = self.grant("small", SMALL, "mps")
        started_ms = (time.perf_counter() - began) * 1000
        daemon = self.sharing.daemon_of(grant)
        before = daemon.pid
        again = GpuSharing(self.sharing.folder, inventory)  # as after kill -9: it knows only what is on disk
        is_adopted = again.maintain_daemons() == [] and daemon.pid == before and again.grants == self.sharing.grants
        with neighbour(grant) as other:  # a tenant computes while the daemon is killed
            os.kill(before, signal.SIGKILL)
            began = time.perf_counter()
            told = again.maintain_daemons()
            restarted_ms = (time.perf_counter() - began) * 1000
            beside = tenant(environment(grant), "allocate", "64")
            worked = ended(other)
        answer = tenant(environment(grant), "allocate", "64")
        result = {
            "started_ms": round(started_ms),
            "is_adopted": is_adopted,
            "is_restart_told": len(told) == 1,
            "restarted_ms": round(restarted_ms),
            "neighbour_after_kill": worked.get("error", "worked on"),
            "beside_it_after_kill": beside.get("error", "works"),
            "works_after_kill": "error" not in answer and daemon.pid not in (0, before),
        }
        again.release("small")
        self.sharing.release("small")
        result["is_gone_after_release"] = daemon.pid == 0
        return result


def missed(result: dict[str, Any]) -> list[str]:
    """The expectations that were missed."""
    found = [f"discovery: {line}" for line in result["discovery_differs_from_nvidia_smi"]]
    mps, slices, service = result["mps"], result["time-slicing"], result["service"]
    if mps["farthest_off"] > MAX_OFF:
        found.append(f"the shares under MPS are {mps['farthest_off']:.0%} off 3:7, at most {MAX_OFF:.0%} is due")
    if mps["memory"]["below"] != "ok" or mps["memory"]["above"] == "ok":
        found.append(f"the memory limit does not hold: {mps['memory']}")
    users = mps["two_users"]
    if "error" in users or abs(users["ratio"] * LARGE / SMALL - 1) > MAX_OFF or users["got_mib"] > users["limit_mib"]:
        found.append(f"two users do not get their shares side by side: {users}")
    for way, row in mps["equal_shares"].items():
        if row["verdict"] != "held":
            found.append(f"{way} among equal shares: {row['verdict']}, and held is promised: {row['seen']}")
    if None in mps["seen_by_agent"]:
        found.append("the agent does not see the tenants' processes")
    for row in (*mps["ways_out"], *slices["ways_out"]):
        if row["verdict"] not in (row["promised"], "not tried"):
            found.append(f"{row['way']}: {row['verdict']}, and {row['promised']} is promised: {row['seen']}")
    found += [
        f"service: {name} is {service[name]}"
        for name in service
        if name.startswith(("is_", "works_")) and not service[name]
    ]
    if result["agent"]["core_percent"] >= MAX_AGENT_PERCENT:
        found.append(f"the agent takes {result['agent']['core_percent']} % of a core, below {MAX_AGENT_PERCENT} is due")
    return found


if __name__ == "__main__":
    sys.exit(main())
