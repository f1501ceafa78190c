"""Turn reports of progress into speeds of nodes: measured over expected, and which nodes stay slow beside the others.

In:    reports of running work, and the state.   Out: one event with the speeds that changed, which the journal keeps: a
replay measures nothing again.

A step is compared with what its program expects, else with the fastest step that the same work has reported. A
bandwidth is compared with the cost model's prediction for the nodes of the work and the traffic of others. The report
of a pod counts for its node. That of a gang counts for all its nodes, but none of them is blamed for it.

Whoever reports may lie. So nobody closes a node to others with a part of it: see `Witnesses`.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from kaiwo.model.events import Event, NodeSpeedsMeasured, ProgressReported, WorkloadGone
from kaiwo.model.network.topology import Topology
from kaiwo.model.performance import (
    FEWEST_OTHERS,
    NodeSpeed,
    ProgressReport,
    SlowRule,
    blended,
    judged,
    permille_of,
    usual_permille,
)
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.network.topology_tables import TopologyTable
from kaiwo.topology.collective_time import UNLIMITED, bus_bandwidth
from kaiwo.topology.link_use import LinkUse, busy_permille
from kaiwo.topology.network_rates import NetworkRates, network_rates

_NO_TABLE = TopologyTable(Topology("", ()), ())
GAP_S = 5  # reports of the same pod that come faster are shown, but not measured
OUT_PARTS = 4  # at most one node in four is out at the same time, and one at least
MAX_WITNESSES = 16  # of one node: the latest
SAVE_S = 60  # between two writes of the file


class PerformanceTracker:
    """One thread at a time. `by_namespace`: whoever may report for one workload may for all of its namespace."""

    def __init__(
        self, policy: Policy = DEFAULT_POLICY, store: "NodeSpeedFile | None" = None, by_namespace: bool = False
    ) -> None:
        is_ignored = policy.slow_nodes == "ignore"
        leaves = policy.slow_nodes == "leave"
        self._rule = None if is_ignored else SlowRule(policy.slow_below_percent, policy.slow_for_s, leaves)
        self._store = store
        self._measured_s: dict[tuple[str, str], int] = {}  # by workload and pod
        self._fastest_us: dict[str, int] = {}  # by workload
        self._witnesses = Witnesses(by_namespace)
        self._saved_s = 0

    def known_before(self) -> list[Event]:
        """What was measured before a restart."""
        known = self._store.load() if self._store is not None else {}
        return [NodeSpeedsMeasured(known)] if known else []

    def measure(self, state: ClusterState, events: Iterable[Event]) -> NodeSpeedsMeasured | None:
        """After these events were applied; the state must not change meanwhile."""
        found: dict[str, NodeSpeed] = {}
        network = _Network(state)
        for event in events:
            if isinstance(event, WorkloadGone):
                self._forget(event.name)
            if isinstance(event, ProgressReported) and self._is_due(event.progress):
                self._add(state, network, event.progress, found)
        if not found:
            return None
        if self._store is not None and (now_s := max(each.at_s for each in found.values())) - self._saved_s >= SAVE_S:
            self._saved_s = now_s
            self._store.save({**state.speeds.nodes, **found})
        return NodeSpeedsMeasured(found)

    def save(self, state: ClusterState) -> None:
        if self._store is not None and state.speeds.nodes:
            self._store.save(state.speeds.nodes)

    def _is_due(self, report: ProgressReport) -> bool:
        last_s = self._measured_s.get((report.workload, report.pod))
        return last_s is None or not 0 <= report.at_s - last_s < GAP_S

    def _add(
        self, state: ClusterState, network: "_Network", report: ProgressReport, found: dict[str, NodeSpeed]
    ) -> None:
        running = [pod for pod in state.pods.get(report.workload, {}).values() if pod.phase is Phase.RUNNING]
        reporting = [pod for pod in running if not report.pod or pod.name == report.pod]
        permille = self._permille(report, network, running) if reporting else 0
        if not permille:
            return
        self._measured_s[report.workload, report.pod] = report.at_s
        nodes = sorted({pod.node for pod in reporting if pod.node in state.node_objects})
        for name in nodes:
            speed = blended(found.get(name) or state.speeds.nodes.get(name), permille, report.at_s)
            if self._rule is not None and len(nodes) == 1:
                self._witnesses.add(state, name, report.workload, permille, report.at_s)
                speed = self._judged(state, name, speed, found, report.workload)
            found[name] = speed

    def _permille(self, report: ProgressReport, network: "_Network", running: Sequence[Pod]) -> int:
        """0: there is nothing to compare it with."""
        if report.bandwidth_mb_s:
            predicted = network.predicted_mb_s(report.workload, running)
            return permille_of(report.bandwidth_mb_s, predicted) if predicted > 0 else 0
        if not report.step_us:
            return 0
        fastest_us = min(self._fastest_us.get(report.workload, report.step_us), report.step_us)
        self._fastest_us[report.workload] = fastest_us
        return permille_of(report.expected_us or fastest_us, report.step_us)

    def _judged(
        self, state: ClusterState, name: str, speed: NodeSpeed, found: dict[str, NodeSpeed], workload: str
    ) -> NodeSpeed:
        rule = self._rule
        assert rule is not None, "the policy has a rule"
        known = {other: each for other, each in {**state.speeds.nodes, **found}.items() if other != name}
        others = self._witnesses.compared_with(state, known, workload)
        out = sum(each.out_until_s > speed.at_s for each in known.values())
        has_room = out < max(1, len(state.node_objects) // OUT_PARTS)
        slow_permille = rule.below_percent * usual_permille(others) // 100
        return judged(
            speed,
            others,
            rule,
            has_room and self._witnesses.agree(state, name, workload, slow_permille, speed.at_s - rule.for_s),
        )

    def _forget(self, workload: str) -> None:
        self._fastest_us.pop(workload, None)
        for key in [key for key in self._measured_s if key[0] == workload]:
            del self._measured_s[key]


class Witnesses:
    """Who has said what about which node: a user, or a namespace where users are not known or not all that counts.

    A node is compared with other nodes of the same witness, whose reports are alike. Where there are too few, every
    other witness has one vote, however many nodes they report about. And a node takes no new work only if two witnesses
    say so, or one who holds all of its GPUs, and so pays for what they close to others.
    """

    def __init__(self, by_namespace: bool = False) -> None:
        self._by_namespace = by_namespace
        self._said: dict[str, dict[str, tuple[int, int]]] = {}  # by node and witness: permille, and when

    def add(self, state: ClusterState, node: str, workload: str, permille: int, at_s: int) -> None:
        said = self._said.setdefault(node, {})
        who = self._witness(state, workload)
        said.pop(who, None)  # the last one is the latest
        said[who] = permille, at_s
        if len(said) > MAX_WITNESSES:
            del said[next(iter(said))]
        if len(self._said) > 2 * len(state.node_objects):
            self._said = {name: each for name, each in self._said.items() if name in state.node_objects}

    def compared_with(self, state: ClusterState, known: dict[str, NodeSpeed], workload: str) -> list[NodeSpeed]:
        """Whose speeds say what is usual for a report of this workload."""
        who = self._witness(state, workload)
        alike = [speed for node, speed in known.items() if speed.permille and who in self._said.get(node, ())]
        if len(alike) >= FEWEST_OTHERS:
            return alike
        votes: dict[str, list[NodeSpeed]] = {}
        for node, speed in known.items():
            if speed.permille:
                votes.setdefault(next(reversed(self._said.get(node, {node: ()}))), []).append(speed)
        return [sorted(each, key=lambda speed: speed.permille)[len(each) // 2] for each in votes.values()]

    def agree(self, state: ClusterState, node: str, workload: str, slow_permille: int, since_s: int) -> bool:
        """Whether this report that the node is slow closes it to others."""
        said = self._said.get(node, {}).values()
        if sum(permille < slow_permille and at_s >= since_s for permille, at_s in said) > 1:
            return True
        who, held = self._witness(state, workload), state.allocations_on.get(node, {}).values()
        theirs = sum(
            share.charge_milli
            for each in held
            if isinstance(each, Pod) and each.workload in state.workloads and self._witness(state, each.workload) == who
            for share in each.devices
        )
        return theirs >= sum(gpu.milli for gpu in state.node_objects[node].gpus)

    def _witness(self, state: ClusterState, workload: str) -> str:
        found = None if self._by_namespace else state.workloads.get(workload)
        return (found.user if found is not None else "") or workload.partition("/")[0]


class _Network:
    """The cost model as of now, computed when the first report needs it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: tuple[NetworkRates, LinkUse] | None = None

    def predicted_mb_s(self, workload: str, pods: Sequence[Pod]) -> int:
        """The bus bandwidth that its GPUs should have; 0: it is not known, or nothing limits it."""
        row = self._state.nodes.row
        gpus = np.zeros((1, len(row)), np.int64)
        for pod in pods:
            if pod.node in row:
                gpus[0, row[pod.node]] += max(1, len(pod.devices))
        if int(gpus.sum()) < 2:
            return 0
        rates, use = self._rates()
        active, _ = use.without(workload)
        found = int(bus_bandwidth(rates, gpus, active)[0])
        return found if 0 < found < UNLIMITED else 0

    def _rates(self) -> tuple[NetworkRates, LinkUse]:
        if self._known is None:
            state = self._state
            state.refresh_tables()
            tables, row = state.nodes.topologies.by_name, state.nodes.row
            every = [network_rates(tables[name], state.nodes.nodes) for name in sorted(tables)]
            # Without a topology, only the links inside nodes are known.
            rates = next((each for each in every if each.has_ports), None) or network_rates(
                _NO_TABLE, state.nodes.nodes
            )
            places = {
                name: [row[pod.node] for pod in pods.values() if pod.node in row] for name, pods in state.pods.items()
            }
            gangs = {name: rows for name, rows in places.items() if rows}
            self._known = rates, LinkUse(rates, lambda _: 0, gangs, busy_permille(state.ports, row))
        return self._known


FILE = "node-speeds.json"


class NodeSpeedFile:
    """Stores the speeds of nodes in the home folder, which no other process writes."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE

    def load(self) -> dict[str, NodeSpeed]:
        """Nothing, if there is none or another version wrote it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, NodeSpeed])
        return {}

    def save(self, speeds: dict[str, NodeSpeed]) -> None:
        """If the disk is full, speeds are measured again after the next restart."""
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.json.encode(speeds))
            os.replace(temporary, self._path)
