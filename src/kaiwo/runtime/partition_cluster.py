"""Partition changes on Kubernetes: plans are objects, and AMD's Device Config Manager makes the changes.

In:    the partition loop, once a turn.   Out: plans for it, nodes that it may change, what a former leader began; and a
       status on each PartitioningPlan.
"""

from collections.abc import Sequence
from typing import Any

from kaiwo.clusters.kubernetes.plans import NodeLine
from kaiwo.devices.amd.partitioning_dcm import OPT_IN
from kaiwo.gpus.course import Key
from kaiwo.gpus.demand import Ongoing
from kaiwo.model.partitioning_plan import PartitioningPlan
from kaiwo.runtime.partition_dcm import DcmNode, Patience, changes_in
from kaiwo.runtime.partition_following import Change, Executor, Following
from kaiwo.runtime.partition_look import NodeStand

PHASES = {
    "done": "Done", "changing": "Changing", "draining": "Draining", "pending": "Waiting", "dry-run": "Skipped",
    "refused": "Failed",
}  # fmt: skip
NOT_LISTED = "no node agent tells its devices, so their modes are not known; enable the agent there"
NOT_LET = f"its owner does not let Kaiwo change it; label it {'='.join(OPT_IN)}"


class ClusterSide:
    """What the partition loop of a Kubernetes cluster needs beside the loop itself."""

    def __init__(self, cluster: Any, config: str = "", patience: Patience | None = None) -> None:
        self._cluster, self._config, self._patience = cluster, config, patience
        self._profiles: dict[str, str] = {}  # by node: what a plan of somebody calls its layout

    @property
    def leads(self) -> bool:
        return bool(self._cluster.tender.may_write)

    def plans(self) -> dict[str, PartitioningPlan]:
        """As the objects of the cluster say."""
        return dict(self._cluster.plans.there)

    def executor(self, name: str) -> Executor | None:
        """Who changes the GPUs of a node; None: nobody."""
        if self.why_not(name):
            return None
        in_use = lambda: self._cluster.devices_in_use(name)  # noqa: E731
        return DcmNode(self._cluster.tender, name, in_use, self._profiles.get(name, ""), self._config, self._patience)

    def why_not(self, name: str) -> str:
        """Why nobody changes this node; empty: somebody does."""
        node = self._cluster.tender.node(name)
        if node is None or node.labels.get(OPT_IN[0]) != OPT_IN[1]:
            return NOT_LET
        return "" if self._cluster.tender.is_listed(name) else NOT_LISTED

    async def adopt(self, following: Following, now_s: int) -> None:
        """Go on with what is written on the nodes."""
        for name, note in self._cluster.tender.notes().items():
            is_known = any(node == name and state.is_changing for (node, _), state in following.states.items())
            if not is_known and following.failed_lately(name, now_s) is None and (changes := changes_in(note)):
                await following.adopt(name, changes, note, now_s)

    def note_profiles(self, stands: Sequence[NodeStand]) -> None:
        """A plan's own name for a layout is what the manager knows."""
        self._profiles = {each.node: each.profile for each in stands if each.state != "dry-run"}

    async def show(self, stands: Sequence[NodeStand], following: Following, policy: str, now_s: int) -> None:
        """Write on each plan how its nodes stand."""
        lines: dict[str, list[NodeLine]] = {name: [] for name in self._cluster.plans.there}
        for stand in stands:
            failed = following.failed_lately(stand.node, now_s)
            line = self._line(stand, following.states, failed, policy)
            lines.setdefault(stand.plan, []).append(line)
        await self._cluster.plans.show(lines)

    def _line(self, stand: NodeStand, states: dict[Key, Ongoing], failed: Change | None, policy: str) -> NodeLine:
        phase, message = PHASES[stand.state], stand.reason
        if any(node == stand.node and state.is_changing for (node, _), state in states.items()):
            phase, message = "Changing", ""
        elif failed is not None and phase != "Done":
            phase = "RolledBack" if failed.status == "rolled-back" else "Failed"
            message = f"{failed.status}: {failed.reason}"
        elif phase in ("Changing", "Draining", "Waiting"):
            why = self.why_not(stand.node)
            if policy != "on":
                phase, message = "Waiting", f"the policy is {policy}: nothing is changed"
            elif why:
                phase, message = "Skipped", why
        return NodeLine(stand.node, phase, stand.profile, message)
