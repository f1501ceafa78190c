"""Let AMD's Device Config Manager change the GPUs of a Kubernetes node, and see what came of it.

In:    the changes of one node on which nobody holds a GPU.   Out: what became of them.
Never: believes the manager's word alone: the devices that the node's agent tells must be those that were wanted, else
       the node gets its old profile back. What is under way is on the Node before anything is touched, so whoever leads
       next goes on with it. A node on which going back failed too keeps its taint, for people to look at.

Also: Partition changes on Kubernetes: plans are objects, and AMD's Device Config Manager makes the changes.
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
from kaiwo.gpus.partitioning.demand import GpuModeState, mode_of
from kaiwo.gpus.partitioning.planner_types import GpuKey
from kaiwo.model.errors import ClusterError
from kaiwo.model.node import Node, Taint
from kaiwo.model.partition_modes import Mode, ModeChange, partition_count
from kaiwo.model.partitioning_plan import PartitioningPlan
from kaiwo.runtime.partitioning.apply_changes import Change, Executor, Following
from kaiwo.runtime.partitioning.plan_changes import NodeStand

DRAINED = Taint(*TAINT)
SHUT = replace(DRAINED, effect="NoSchedule")
LOOK_S = 0.5
SETTLE_S = 2.0  # so long after the taint a start of somebody else may still show
MOST_MISSING = 1  # devices: real nodes of 64 partitions show 63


class Patience(msgspec.Struct, frozen=True):
    """How long the manager may take, and then the device plugin and the agent."""

    manager_s: float = 1800.0
    devices_s: float = 300.0


class Record(msgspec.Struct, frozen=True):
    """What is written on the Node."""

    profile: str
    before_profile: str
    after: dict[str, Mode]
    before: dict[str, Mode]
    is_back: bool = False
    reason: str = ""


class DcmNode:
    """One node. `profile`: what a plan of somebody calls the layout; empty: the name that we give it."""

    def __init__(
        self,
        tender: NodeWriter,
        node: str,
        in_use: Callable[[], frozenset[str]],
        profile: str = "",
        config: str = "",  # namespace/name of the manager's ConfigMap; empty: its profiles are somebody else's matter
        patience: Patience | None = None,
    ) -> None:
        self.node = node
        self._tender, self._in_use, self._profile, self._config = tender, in_use, profile, config
        self._patience = patience or Patience()

    async def carry_out(self, changes: Sequence[ModeChange]) -> ChangeOutcome:
        """All of them or none."""
        node = self._tender.node(self.node)
        if node is None:
            return ChangeOutcome("refused", "the node is gone")
        before = modes_of(node)
        after = before | {change.gpu: change.after for change in changes}
        name = self._profile or profile_name(list(after.values()))
        held = node.labels.get(PROFILE_LABEL) or profile_name(list(before.values()))
        record = Record(name, held, after, before)
        if self._config:
            await self._write_profiles([list(after.values()), list(before.values())])
        await self._tender.mark(self.node, _note(record))
        await self._tender.taint(self.node, SHUT)
        await asyncio.sleep(SETTLE_S)
        if self._in_use():
            await self._open()
            return ChangeOutcome("busy", "somebody was placed on the node while it was being closed")
        await self._ask(name)
        return await self._finish(record)

    async def resume(self, note: str) -> ChangeOutcome:
        """Go on with what a former leader began."""
        record = msgspec.json.decode(note, type=Record)
        profile = record.before_profile if record.is_back else record.profile
        node = self._tender.node(self.node)
        if node is not None and node.labels.get(PROFILE_LABEL) != profile:
            if self._in_use():  # it was stopped before anything was touched, and somebody else has it now
                await self._open()
                return ChangeOutcome("busy", "somebody was placed on the node while it was being closed")
            await self._ask(profile)
        return await self._finish(record)

    async def _ask(self, profile: str) -> None:
        """As AMD's manual has it: the taint first, so that nothing holds a GPU, then the label."""
        await self._tender.taint(self.node, DRAINED)
        await self._tender.mark(self.node, labels=labels_for(profile))

    async def _open(self) -> None:
        """The note goes last: until then the next leader would go on with it."""
        await self._tender.untaint(self.node, DRAINED.key)
        await self._tender.unmark(self.node)

    async def _finish(self, record: Record) -> ChangeOutcome:
        if not record.is_back:
            problem, devices = await self._wait(record.profile, record.after)
            if not problem:
                await self._open()
                return ChangeOutcome("done", devices=devices)
            record = replace(record, is_back=True, reason=problem)
            await self._tender.mark(self.node, _note(record), labels_for(record.before_profile))
        problem, devices = await self._wait(record.before_profile, record.before)
        if problem:
            return ChangeOutcome("stuck", f"{record.reason}; and after going back: {problem}", devices)
        await self._open()
        return ChangeOutcome("rolled-back", record.reason, devices)

    async def _wait(self, profile: str, modes: Mapping[str, Mode]) -> tuple[str, int]:
        """What went wrong, or nothing, and how many devices there are."""
        if problem := await self._until(lambda node: _manager_problem(node, profile), self._patience.manager_s):
            return problem, 0
        problem = await self._until(lambda node: difference(node, modes), self._patience.devices_s)
        node = self._tender.node(self.node)
        return problem, len(node.gpus) if node is not None else 0

    async def _until(self, problem_of: Callable[[Node], tuple[str, bool]], patience_s: float) -> str:
        """Until there is no problem, one that does not pass, or the patience is over."""
        deadline = time.monotonic() + patience_s
        while True:
            node = self._tender.node(self.node)
            problem, is_final = problem_of(node) if node is not None else ("the node is gone", False)
            if not problem or is_final or time.monotonic() > deadline:
                return problem
            await asyncio.sleep(LOOK_S)

    async def _write_profiles(self, layouts: Sequence[Sequence[Mode]]) -> None:
        """The manager knows layouts by name: ours are added, what others wrote stays."""
        try:
            config = await self._tender.read_config(self._config)
        except msgspec.DecodeError as error:
            raise ClusterError(f"the configuration in {self._config} is no JSON ({error})") from error
        fresh = dict(config)
        for modes in layouts:
            fresh = with_profile(fresh, modes)
        if fresh != config:
            await self._tender.write_config(self._config, fresh)


def changes_in(note: str) -> list[ModeChange]:
    """What a note says is under way; none when somebody spoilt it."""
    try:
        record = msgspec.json.decode(note, type=Record)
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
    """What the node shows that was not wanted. It may pass: its agent looks once a second."""
    shown = modes_of(node)
    wrong = [gpu for gpu, mode in modes.items() if shown.get(gpu, mode) != mode]
    if wrong:
        first = wrong[0]
        return f"{first} shows {'+'.join(shown[first])} after {'+'.join(modes[first])} was set", False
    model = node.gpus[0].model if node.gpus else ""
    expected = sum(partition_count(model, mode.compute) for mode in modes.values())
    if abs(expected - len(node.gpus)) > MOST_MISSING:
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


def _note(record: Record) -> str:
    return msgspec.json.encode(record).decode()


PHASES = {
    "done": "Done", "changing": "Changing", "draining": "Draining", "pending": "Waiting", "dry-run": "Skipped",
    "refused": "Failed",
}  # fmt: skip
NOT_LISTED = "no node agent tells its devices, so their modes are not known; enable the agent there"
NOT_LET = f"its owner does not let Kaiwo change it; label it {'='.join(OPT_IN)}"


class KubernetesPartitioning:
    """Implements PlanObjects."""

    def __init__(self, cluster: KubernetesCluster, config: str = "", patience: Patience | None = None) -> None:
        self._cluster, self._config, self._patience = cluster, config, patience
        self._profiles: dict[str, str] = {}  # by node: what a plan of somebody calls its layout

    @property
    def leads(self) -> bool:
        return bool(self._cluster.node_writer.may_write)

    def plans(self) -> dict[str, PartitioningPlan]:
        """As the objects of the cluster say."""
        return dict(self._cluster.partitioning_plans.plans)

    def executor(self, name: str) -> Executor | None:
        """Who changes the GPUs of a node; None: nobody."""
        if self.why_not(name):
            return None
        in_use = lambda: self._cluster.devices_in_use(name)  # noqa: E731
        return DcmNode(
            self._cluster.node_writer, name, in_use, self._profiles.get(name, ""), self._config, self._patience
        )

    def why_not(self, name: str) -> str:
        """Why nobody changes this node; empty: somebody does."""
        node = self._cluster.node_writer.node(name)
        if node is None or node.labels.get(OPT_IN[0]) != OPT_IN[1]:
            return NOT_LET
        return "" if self._cluster.node_writer.is_listed(name) else NOT_LISTED

    async def adopt(self, following: Following, now_s: int) -> None:
        """Go on with what is written on the nodes."""
        for name, note in self._cluster.node_writer.notes().items():
            is_known = any(node == name and state.is_changing for (node, _), state in following.states.items())
            if not is_known and following.failed_lately(name, now_s) is None and (changes := changes_in(note)):
                await following.adopt(name, changes, note, now_s)

    def note_profiles(self, stands: Sequence[NodeStand]) -> None:
        """A plan's own name for a layout is what the manager knows."""
        self._profiles = {each.node: each.profile for each in stands if each.state != "dry-run"}

    async def show(self, stands: Sequence[NodeStand], following: Following, policy: str, now_s: int) -> None:
        """Write on each plan how its nodes stand."""
        lines: dict[str, list[NodeProgress]] = {name: [] for name in self._cluster.partitioning_plans.plans}
        for stand in stands:
            failed = following.failed_lately(stand.node, now_s)
            line = self._line(stand, following.states, failed, policy)
            lines.setdefault(stand.plan, []).append(line)
        self._cluster.partitioning_plans.publish(lines)

    def _line(
        self, stand: NodeStand, states: dict[GpuKey, GpuModeState], failed: Change | None, policy: str
    ) -> NodeProgress:
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
        return NodeProgress(stand.node, phase, stand.profile, message)
