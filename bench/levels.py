"""How fast work with levels is placed: 1,000 nodes x 8 GPUs in leaves of 32 nodes and spines of 256.

In:    clusters made here, seven tenths of the nodes in use.   Out: milliseconds of the whole cycle that starts a gang.
A figure covers snapshot, decision, journal and patch. The same gangs without levels stand beside it.
"""

import argparse
import json
import random
import sys
import tempfile
import time

from msgspec.structs import replace

from bench.decide import GPUS, cluster, take
from kaiwo.history import Journal
from kaiwo.model.events import Event, NodeChanged, PodChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner

NODES = 1_000
NODES_PER_LEAF, LEAVES_PER_SPINE = 32, 8
WHOLE, EIGHTH = Request(8_000, 8_192, gpus=GPUS), Request(1_000, 1_024, gpus=1)
FABRIC = Topology("fabric", (TopologyLevel("spine", "net/spine"), TopologyLevel("leaf", "net/leaf")))
RATED = Topology(
    "fabric",
    (TopologyLevel("spine", "net/spine"), TopologyLevel("leaf", "net/leaf", uplink_mb_s=50_000, uplinks=64)),
    node_port_mb_s=50_000,
    node_ports=4,
)  # two nodes share an uplink of each rail: 2:1
AT_MOST = {
    "gang128_nodes_ms": 50.0,
    "gang128_rated_ms": 50.0,
    "gang512_required_ms": 1_000.0,
    "gang512_waits_ms": 1_000.0,
}
ROUNDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int, default=NODES)
    result = measure(parser.parse_args().nodes)
    print(json.dumps(result) if "--json" in sys.argv else json.dumps(result, indent=2))
    missed = [f"{key} is {result[key]}, at most {most} is due" for key, most in AT_MOST.items() if result[key] > most]
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(nodes: int) -> dict[str, float]:
    """The best of some rounds, since other work runs on the machine."""
    rounds = [_measure(nodes) for _ in range(ROUNDS)]
    return {key: min(each[key] for each in rounds) for key in rounds[0]}


def _measure(nodes: int) -> dict[str, float]:
    whole = Role(WHOLE, count=128)
    many = Role(EIGHTH, count=512)
    return {
        "gang128_nodes_ms": _start(nodes, 0, Workload("default/gang", (whole,), preferred_level="leaf"), 128),
        "gang128_rated_ms": _start(nodes, 70, Workload("default/gang", (whole,), preferred_level="leaf"), 128, RATED),
        "gang128_required_ms": _start(nodes, 0, Workload("default/gang", (whole,), required_level="spine"), 128),
        "gang128_without_levels_ms": _start(nodes, 0, Workload("default/gang", (whole,)), 128),
        "gang512_required_ms": _start(nodes, 70, Workload("default/gang", (many,), required_level="spine"), 512),
        "gang512_without_levels_ms": _start(nodes, 70, Workload("default/gang", (many,)), 512),
        "gang512_waits_ms": _start(nodes, 70, Workload("default/gang", (many,), required_level="leaf"), 0),
    }


def _start(nodes: int, load_percent: int, gang: Workload, pods: int, topology: Topology = FABRIC) -> float:
    with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
        scheduler = CycleRunner(journal)
        take(scheduler, fabric_of(nodes, load_percent, topology))
        scheduler.cycle(now_s=0)
        take(scheduler, [WorkloadChanged(gang)])
        began = time.process_time()
        decision = scheduler.cycle(now_s=1)
        took_ms = (time.process_time() - began) * 1000
        assert decision is not None, "a new gang is worth a cycle"
        assert len(decision.plan.starts) == pods, f"{len(decision.plan.starts)} pods started, {pods} are due"
        return round(took_ms, 1)


def fabric_of(nodes: int, load_percent: int, topology: Topology = FABRIC, seed: int = 7) -> list[Event]:
    """Nodes in leaves and spines, with whole nodes in use."""
    chance, found = random.Random(seed), list[Event]([TopologyChanged(topology)])
    at = 0
    for event in cluster(nodes):
        if not isinstance(event, NodeChanged):
            found.append(event)
            continue
        leaf = at // NODES_PER_LEAF
        at += 1
        labels = {"net/leaf": f"leaf-{leaf:03}", "net/spine": f"spine-{leaf // LEAVES_PER_SPINE}"}
        found.append(NodeChanged(replace(event.node, labels={**event.node.labels, **labels})))
        if chance.randrange(100) < load_percent:
            shares = tuple(Share(gpu.id, 1000, gpu.memory_mib) for gpu in event.node.gpus)
            name = f"default/old-{event.node.name}"
            found.append(WorkloadChanged(Workload(name, (Role(WHOLE),))))
            found.append(PodChanged(Pod(name, "main-0", event.node.name, devices=shares, cpu_milli=8_000)))
    return found


if __name__ == "__main__":
    sys.exit(main())
