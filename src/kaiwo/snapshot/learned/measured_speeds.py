"""Measured speeds as the state knows them: the last reports of running work, and the speed of each node.

In:    events.   Out: how fast each node is beside the others, and the nodes that are too slow to take new work.
Never: looks at nodes of which nothing is known. Without a report, nothing here costs anything.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.model.events import Event, NodeSpeedsMeasured, ProgressReported
from kaiwo.model.node import Node
from kaiwo.model.performance import NodeSpeed, ProgressReport, given_another_chance
from kaiwo.snapshot.sharing_rules import tenant_of

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class MeasuredSpeeds:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeSpeed] = {}
        self.progress: dict[str, dict[str, ProgressReport]] = {}  # by workload and pod: the last report
        self.out: dict[str, int] = {}  # slow nodes, and until when they take no new work

    @property
    def left(self) -> list[str]:
        """Slow nodes that running work leaves."""
        return sorted(name for name in self.out if self.nodes[name].is_left)

    def events(self) -> Iterable[Event]:
        for _, reports in sorted(self.progress.items()):
            yield from (ProgressReported(reports[pod]) for pod in sorted(reports))
        if self.nodes:
            yield NodeSpeedsMeasured(dict(sorted(self.nodes.items())))

    def forget_workload(self, name: str) -> None:
        self.progress.pop(name, None)

    def move_times(self, by_s: int) -> None:
        """The clock was set ahead or back: what was measured stays as long ago."""
        self.nodes = {name: _moved(speed, by_s) for name, speed in self.nodes.items()}
        self.out = {name: until_s + by_s for name, until_s in self.out.items()}
        for reports in self.progress.values():
            for pod, report in reports.items():
                reports[pod] = replace(report, at_s=report.at_s + by_s)

    def copy(self) -> "MeasuredSpeeds":
        other = MeasuredSpeeds()
        other.nodes, other.out = dict(self.nodes), dict(self.out)
        other.progress = {name: dict(reports) for name, reports in self.progress.items()}
        return other


def progress_reported(state: "ClusterState", event: ProgressReported) -> None:
    """It is kept until its workload is gone, whichever comes first: the report or the pods."""
    state.speeds.progress.setdefault(event.progress.workload, {})[event.progress.pod] = event.progress


def node_speeds_measured(state: "ClusterState", event: NodeSpeedsMeasured) -> None:
    """A node that is too slow takes no new work for a while, as one that came and went."""
    for name, speed in event.speeds.items():
        before = state.speeds.out.pop(name, 0)
        state.speeds.nodes[name] = speed
        if speed.out_until_s:
            state.speeds.out[name] = speed.out_until_s
        node = state.node_objects.get(name)
        if node is None or speed.out_until_s == before:
            continue
        node = state.node_objects[name] = with_slow_time(state, node)
        if node.failure.out_until_s:
            state.failures.resting[name] = node.failure.out_until_s
        state.is_cycle_due = True
        state.retry_all_classes()
        if not state.nodes_stale:
            held = state.allocations_on.get(name, {}).values()
            state.nodes.write_node(node, held, state.version, partial(tenant_of, state))


def with_slow_time(state: "ClusterState", node: Node) -> Node:
    """The node as it counts: it takes no new work while it is too slow."""
    until_s = state.speeds.out.get(node.name, 0)
    if until_s <= node.failure.out_until_s:
        return node
    return replace(node, failure=replace(node.failure, out_until_s=until_s))


def end_slow_times(state: "ClusterState", now_s: int) -> None:
    """Slow nodes get another chance once their time is over; `end_rests` lets them take work."""
    for name in [name for name, until_s in state.speeds.out.items() if until_s <= now_s]:
        del state.speeds.out[name]
        state.speeds.nodes[name] = given_another_chance(state.speeds.nodes[name])
        state.version += 1


def _moved(speed: NodeSpeed, by_s: int) -> NodeSpeed:
    def moved(at_s: int) -> int:
        return at_s + by_s if at_s else 0

    return replace(
        speed,
        at_s=moved(speed.at_s),
        slow_since_s=moved(speed.slow_since_s),
        out_until_s=moved(speed.out_until_s),
        last_s=moved(speed.last_s),
    )
