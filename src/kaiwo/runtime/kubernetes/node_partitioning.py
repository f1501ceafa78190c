"""Change partition modes on Kubernetes: plans are objects, and AMD's Device Config Manager changes the GPUs of a node.

The manager's report alone is not trusted: if the devices that the node's agent reports are not those that were
requested, the node gets its old profile back. A change is recorded on the Node before anything is touched, so the next
leader can continue it. A node that could not be rolled back keeps its taint until an administrator removes it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.writers.node_writer import NodeWriter
from kaiwo.clusters.kubernetes.writers.partitioning_plan_status_writer import NodeProgress
from kaiwo.devices.amd.change_partitions import ChangeOutcome
from kaiwo.devices.amd.device_config_manager import (
    OPT_IN,
    PROFILE_LABEL,
    TAINT,
    dcm_state,
    labels_for,
    profile_name,
    with_profile,
)
from kaiwo.gpus.partitioning.demand import mode_of
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.partition_modes import Mode, ModeChange, partition_count
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.node import Node, Taint
from kaiwo.runtime.partitioning.apply_changes import Executor, ModeChanger
from kaiwo.runtime.partitioning.plan_changes import NodePlanStatus

DRAINED = Taint(*TAINT)
CLOSED = replace(DRAINED, effect="NoSchedule")
POLL_S = 0.5
SETTLE_S = 2.0  # after the taint, a pod of another scheduler may still start for this long
MAX_MISSING = 1  # devices: real nodes of 64 partitions show 63


class ChangeTimeouts(msgspec.Struct, frozen=True):
    """How long the manager may take, and then the device plugin and the agent."""

    manager_s: float = 1800.0
    devices_s: float = 300.0


class ProfileChangeRecord(msgspec.Struct, frozen=True):
    """The annotation on the Node."""

    profile: str
    before_profile: str
    after: dict[str, Mode]
    before: dict[str, Mode]
    is_back: bool = False
    reason: str = ""


class DcmNode:
    """An Executor for one node. `profile`: a plan's name for the layout; empty: Kaiwo's own name for it."""

    def __init__(
        self,
        writer: NodeWriter,
        node: str,
        in_use: Callable[[], frozenset[str]],
        profile: str = "",
        config: str = "",  # namespace/name of the manager's ConfigMap; empty: Kaiwo does not write profiles
        timeouts: ChangeTimeouts | None = None,
    ) -> None:
        self.node = node
        self._writer, self._in_use, self._profile, self._config = writer, in_use, profile, config
        self._timeouts = timeouts or ChangeTimeouts()

    async def carry_out(self, changes: Sequence[ModeChange]) -> ChangeOutcome:
        node = self._writer.node(self.node)
        if node is None:
            return ChangeOutcome("refused", "the node is gone")
        before = modes_of(node)
        after = before | {change.gpu: change.after for change in changes}
        name = self._profile or profile_name(list(after.values()))
        held = node.labels.get(PROFILE_LABEL) or profile_name(list(before.values()))
        record = ProfileChangeRecord(name, held, after, before)
        if self._config:
            await self._write_profiles([list(after.values()), list(before.values())])
        await self._writer.write_change(self.node, _note(record))
        await self._writer.taint(self.node, CLOSED)
        await asyncio.sleep(SETTLE_S)
        if self._in_use():
            await self._reopen()
            return ChangeOutcome("busy", "a pod was placed on the node while it was being closed")
        await self._request_profile(name)
        return await self._finish(record)

    async def resume(self, note: str) -> ChangeOutcome:
        record = msgspec.json.decode(note, type=ProfileChangeRecord)
        profile = record.before_profile if record.is_back else record.profile
        node = self._writer.node(self.node)
        if node is not None and node.labels.get(PROFILE_LABEL) != profile:
            if self._in_use():  # it was stopped before anything was touched, and other work uses it now
                await self._reopen()
                return ChangeOutcome("busy", "a pod was placed on the node while it was being closed")
            await self._request_profile(profile)
        return await self._finish(record)

    async def _request_profile(self, profile: str) -> None:
        """Request a profile as AMD's manual says: the taint first, so that nothing holds a GPU, then the label."""
        await self._writer.taint(self.node, DRAINED)
        await self._writer.write_labels(self.node, labels_for(profile))

    async def _reopen(self) -> None:
        """Open the node to pods. The note is removed last: until then the next leader would continue the change."""
        await self._writer.untaint(self.node, DRAINED.key)
        await self._writer.write_change(self.node, "")

    async def _finish(self, record: ProfileChangeRecord) -> ChangeOutcome:
        if not record.is_back:
            problem, devices = await self._wait(record.profile, record.after)
            if not problem:
                await self._reopen()
                return ChangeOutcome("done", devices=devices)
            record = replace(record, is_back=True, reason=problem)
            await self._writer.write_change(self.node, _note(record), labels_for(record.before_profile))
        problem, devices = await self._wait(record.before_profile, record.before)
        if problem:
            return ChangeOutcome("stuck", f"{record.reason}; and after rolling back: {problem}", devices)
        await self._reopen()
        return ChangeOutcome("rolled-back", record.reason, devices)

    async def _wait(self, profile: str, modes: Mapping[str, Mode]) -> tuple[str, int]:
        """What went wrong (empty: nothing), and how many devices there are."""
        if problem := await self._until(lambda node: _manager_problem(node, profile), self._timeouts.manager_s):
            return problem, 0
        problem = await self._until(lambda node: difference(node, modes), self._timeouts.devices_s)
        node = self._writer.node(self.node)
        return problem, len(node.gpus) if node is not None else 0

    async def _until(self, problem_of: Callable[[Node], tuple[str, bool]], timeout_s: float) -> str:
        """Wait until there is no problem, a final one, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            node = self._writer.node(self.node)
            problem, is_final = problem_of(node) if node is not None else ("the node is gone", False)
            if not problem or is_final or time.monotonic() > deadline:
                return problem
            await asyncio.sleep(POLL_S)

    async def _write_profiles(self, layouts: Sequence[Sequence[Mode]]) -> None:
        """The manager knows layouts by name: Kaiwo's are added, other ones stay."""
        try:
            config = await self._writer.read_config(self._config)
        except msgspec.DecodeError as error:
            raise ClusterError(f"the configuration in {self._config} is not JSON ({error})") from error
        fresh = dict(config)
        for modes in layouts:
            fresh = with_profile(fresh, modes)
        if fresh != config:
            await self._writer.write_config(self._config, fresh)


def changes_in(note: str) -> list[ModeChange]:
    """The changes that a note on a node says are in progress; none when it cannot be read."""
    try:
        record = msgspec.json.decode(note, type=ProfileChangeRecord)
    except msgspec.MsgspecError:
        return []
    return [ModeChange(gpu, mode, record.after.get(gpu, mode)) for gpu, mode in record.before.items()]


def modes_of(node: Node) -> dict[str, Mode]:
    """The mode of each physical GPU, in the order in which the node has them."""
    found: dict[str, Mode] = {}
    for gpu in node.gpus:
        found.setdefault(gpu.parent or gpu.id, mode_of(gpu))
    return found


def difference(node: Node, modes: Mapping[str, Mode]) -> tuple[str, bool]:
    """How the node differs from these modes, and whether that is final. Its agent reports once a second."""
    shown = modes_of(node)
    wrong = [gpu for gpu, mode in modes.items() if shown.get(gpu, mode) != mode]
    if wrong:
        first = wrong[0]
        return f"{first} shows {'+'.join(shown[first])} after {'+'.join(modes[first])} was set", False
    model = node.gpus[0].model if node.gpus else ""
    expected = sum(partition_count(model, mode.compute) for mode in modes.values())
    if abs(expected - len(node.gpus)) > MAX_MISSING:
        return f"the node shows {len(node.gpus)} devices, and {expected} were expected", False
    return "", False


def _manager_problem(node: Node, profile: str) -> tuple[str, bool]:
    match dcm_state(node.labels, profile):
        case "done":
            return "", True
        case "failed":
            return f"the Device Config Manager could not apply {profile}", True
        case _:
            return f"the Device Config Manager does not answer about {profile}", False


def _note(record: ProfileChangeRecord) -> str:
    return msgspec.json.encode(record).decode()


PHASES = {
    "done": "Done", "changing": "Changing", "draining": "Draining", "pending": "Waiting", "dry-run": "Skipped",
    "refused": "Failed",
}  # fmt: skip
NO_AGENT = "no node agent reports its devices, so their modes are unknown; enable the agent there"
NOT_ALLOWED = f"Kaiwo may not change its partition modes; to allow it, label the node {'='.join(OPT_IN)}"


class KubernetesPartitioning:
    """Implements PlanObjects."""

    def __init__(self, cluster: KubernetesCluster, config: str = "", timeouts: ChangeTimeouts | None = None) -> None:
        self._cluster, self._config, self._timeouts = cluster, config, timeouts
        self._profiles: dict[str, str] = {}  # by node: a plan's name for its layout

    @property
    def leads(self) -> bool:
        return bool(self._cluster.node_writer.may_write)

    def plans(self) -> dict[str, PartitioningPlan]:
        return dict(self._cluster.partitioning_plans.plans)

    def executor(self, name: str) -> Executor | None:
        if self.why_not(name):
            return None
        in_use = lambda: self._cluster.devices_in_use(name)  # noqa: E731
        return DcmNode(
            self._cluster.node_writer, name, in_use, self._profiles.get(name, ""), self._config, self._timeouts
        )

    def why_not(self, name: str) -> str:
        """Why this node cannot be changed; empty: it can."""
        node = self._cluster.node_writer.node(name)
        if node is None or node.labels.get(OPT_IN[0]) != OPT_IN[1]:
            return NOT_ALLOWED
        return "" if self._cluster.node_writer.has_agent(name) else NO_AGENT

    async def adopt(self, changer: ModeChanger, now_s: int) -> None:
        for name, note in self._cluster.node_writer.changes().items():
            is_known = any(node == name and state.is_changing for (node, _), state in changer.states.items())
            if not is_known and changer.failed_lately(name, now_s) is None and (changes := changes_in(note)):
                await changer.adopt(name, changes, note, now_s)

    def note_profiles(self, statuses: Sequence[NodePlanStatus]) -> None:
        """The manager knows a layout by its plan's own name for it."""
        self._profiles = {each.node: each.profile for each in statuses if each.state != "dry-run"}

    async def show(self, statuses: Sequence[NodePlanStatus], changer: ModeChanger, policy: str, now_s: int) -> None:
        lines: dict[str, list[NodeProgress]] = {name: [] for name in self._cluster.partitioning_plans.plans}
        for status in statuses:
            phase, message = self._phase(status, changer, policy, now_s)
            lines.setdefault(status.plan, []).append(NodeProgress(status.node, phase, status.profile, message))
        self._cluster.partitioning_plans.publish(lines)

    def _phase(self, status: NodePlanStatus, changer: ModeChanger, policy: str, now_s: int) -> tuple[str, str]:
        failed = changer.failed_lately(status.node, now_s)
        if any(node == status.node and state.is_changing for (node, _), state in changer.states.items()):
            return "Changing", ""
        if failed is not None and status.state != "done":
            phase = "RolledBack" if failed.status == "rolled-back" else "Failed"
            return phase, f"{failed.status}: {failed.reason}"
        if status.state in ("changing", "draining", "pending"):
            if policy != "on":
                return "Waiting", f"the policy is {policy}: nothing is changed"
            if why := self.why_not(status.node):
                return "Skipped", why
        return PHASES[status.state], status.reason
