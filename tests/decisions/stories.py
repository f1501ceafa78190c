"""Random stories that use every capability of the core at once, each from one seed.

In:    a seed.   Out: a World that goes on by one happening and one cycle at a time.
A story has mixed GPU models and partitions, shares, gangs with sub-groups, a tree of queues, reservations, planned
starts, rules between pods, failing nodes and devices, a clock that moves, and one of many policies. Its flavour says
which of these come often: with everything at once little would ever start.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.gpus.partitioning.pending_mode_change import close_for_change
from kaiwo.model.affinity import (
    HOST_PORT_PREFIX,
    NODE_LEVEL,
    NodePreference,
    NodeRule,
    PodAffinity,
    RequiredPodAffinity,
    RequiredPodAntiAffinity,
    TopologySpread,
)
from kaiwo.model.events import (
    NodeChanged,
    NodeGone,
    PastUsageChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
    WorkloadChanged,
)
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import DeviceLinks, Node, Taint
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNLIMITED, Fairness, GpuModelAmounts, Queue, QueueAmounts, ReclaimStrategy, SharePolicy
from kaiwo.model.request import Request, Toleration
from kaiwo.model.reservation import AtEnd, PhysicalDevice, Reservation, ReservationOwner
from kaiwo.model.workload import Role, SubGroup, Workload
from tests.worlds import World

MODELS = ("MI300X", "MI300X", "MI210", "H100")
ALL_ACTIONS = ("allocate", "consolidate", "reclaim", "preempt", "stale-gangs")
POLICIES = (
    Policy(),
    Policy(actions=ALL_ACTIONS),
    Policy(actions=("allocate", "preempt", "reclaim", "consolidate", "stale-gangs"), victim_order="youngest"),
    Policy(placement="spread", gpu_strategy="best-fit", hold_off_s=30),
    Policy(gpu_strategy="worst-fit", age_boost_milli=3_600_000, size_boost_milli=-500, promises=2, large_permille=250),
    Policy(gpu_strategy="first-fit", size_boost_milli=2_000, steps=40, promises=3, large_permille=300),
    Policy(gpu_strategy="round-robin", steps=15, stale_gang_grace_s=5),
    Policy(gpu_strategy="load-balanced", promises=0, actions=ALL_ACTIONS, steps=120),
)
LEAVES = ("default", "lab-a", "lab-b", "prod", "deep")
USERS = ("ada", "bob")


class Flavour(NamedTuple):
    """How often a story uses a capability, from 0 to 1."""

    rules: float = 0.0  # of nodes, between pods, extended resources
    shares: float = 0.1  # fractions, memory, partitions
    queues: float = 0.3  # work outside the default queue
    reserved: float = 0.0
    planned: float = 0.1  # work that says how long it runs, and large gangs
    wide: bool = False  # many small nodes and many queues


FLAVOURS = (
    Flavour(queues=1.0),
    Flavour(planned=0.9, queues=0.2),
    Flavour(shares=0.8, rules=0.1),
    Flavour(reserved=0.5, planned=0.4),
    Flavour(rules=0.4, queues=0.5, shares=0.4, reserved=0.15, planned=0.3),
    Flavour(queues=1.0, wide=True),
)


class Story:
    """One world and the next thing that happens in it."""

    def __init__(self, seed: int) -> None:
        self.draw, self.flavour = random.Random(seed), FLAVOURS[seed % len(FLAVOURS)]
        self.world = World(nodes=0, policy=POLICIES[seed // len(FLAVOURS) % len(POLICIES)])
        self._made = 0
        self._leaves = (*LEAVES, *(f"team-{number}" for number in range(6))) if self.flavour.wide else LEAVES
        self._add_queues()
        for number in range(18 if self.flavour.wide else self.draw.randint(2, 5)):
            self.world.tell(NodeChanged(self._node(f"node-{number}")))
        for _ in range(20 if self.flavour.wide else self.draw.randint(2, 6)):
            self.world.tell(WorkloadChanged(self._workload()))

    def plans(self, cycles: int) -> Iterator[Plan]:
        """So many happenings, each followed by a cycle."""
        for number in range(cycles):
            yield self.world.decide()
            if self.draw.random() < 0.8:  # else those who were told to go take their time
                self.world.let_go()
            for _ in range(self.draw.choice((0, 1, 1, 2, 3))):
                self._happen()
            if number % 5 == 4:
                self.world.now_s += self.draw.choice((20, 60, 400))

    def _happen(self) -> None:
        draw, world = self.draw, self.world
        running = sorted(world.state.pods)
        rare = draw.choice(("pod", "node", "gpu", "queue", "change", "past", "checkpoint"))
        if self._has(self.flavour.reserved):
            rare = draw.choice(("reserve", "reserve", "unreserve"))
        if world.state.nominations and self._has(0.4):
            rare = "nominated"
        match draw.choice((*("work",) * 6, "end", "end", "time", "time", rare, rare)):
            case "work":
                world.tell(WorkloadChanged(self._workload()))
            case "end" if running:
                world.finish(draw.choice(running))
            case "time":
                world.now_s += draw.choice((1, 3, 10, 45))
            case "pod" if running:
                name = draw.choice(running)
                world.tell(PodGone(name, draw.choice(sorted(world.state.pods[name]))))
                if name in world.state.workloads:
                    world.tell(WorkloadChanged(replace(world.state.workloads[name], broken_since_s=world.now_s + 1)))
            case "node":
                self._change_node()
            case "gpu":
                self._change_gpu()
            case "queue":
                name = draw.choice(LEAVES[1:])
                queue = replace(world.state.queue_objects[name], gpu=self._amounts())
                if self._has(0.2):  # it goes, and comes back another one
                    world.tell(QueueGone(name))
                world.tell(QueueChanged(queue))
            case "change":
                self._change_workload()
            case "nominated":
                self._spoil_nomination()
            case "reserve":
                world.tell(ReservationChanged(self._reservation()))
            case "unreserve":
                world.tell(ReservationGone(f"r{draw.randrange(3)}"))
            case "past":
                parts = {name: tuple(draw.randrange(1 << 40) for _ in range(3)) for name in LEAVES}
                world.tell(PastUsageChanged(parts, draw.choice((0, 500, 1000))))
            case "checkpoint" if running:
                name = draw.choice(running)
                if name in world.state.workloads:
                    saved = replace(
                        world.state.workloads[name], checkpoint_s=world.now_s, restart_s=draw.choice((0, 30))
                    )
                    world.tell(WorkloadChanged(saved))

    def _change_node(self) -> None:
        draw, world = self.draw, self.world
        names = sorted(world.state.node_objects)
        name = draw.choice(names)
        node = world.state.node_objects[name]
        match draw.choice(("lost", "cordoned", "ready", "new", "taint")):
            case "lost" if len(names) > 2:
                world.lose_node(name)
            case "cordoned":
                world.tell(NodeChanged(replace(node, cordoned=not node.cordoned)))
            case "ready":
                world.tell(NodeChanged(replace(node, ready=not node.ready)))
            case "new":
                world.tell(NodeChanged(self._node(f"node-{len(names) + 5}")))
            case "taint":
                world.tell(NodeChanged(replace(node, taints=() if node.taints else (Taint("gpu", "only"),))))
            case _ if len(names) > 3:
                world.lose_node(name)
                world.tell(NodeGone(name))

    def _spoil_nomination(self) -> None:
        """What was nominated for can be used no more, or its queue may not pay for it."""
        draw, world = self.draw, self.world
        name = draw.choice(sorted(world.state.nominations))
        kept = world.state.nominations[name]
        node = world.state.node_objects.get(kept[sorted(kept)[0]].node)
        queue = world.state.queue_objects.get(
            world.state.workloads[name].queue if name in world.state.workloads else ""
        )
        if queue is not None and self._has(0.5):
            world.tell(QueueChanged(replace(queue, gpu=QueueAmounts(0, draw.choice((0, 1_000, 2_000))))))
        elif node is not None:
            world.tell(NodeChanged(replace(node, taints=(Taint("gpu", "only"),), cordoned=self._has(0.3))))

    def _change_gpu(self) -> None:
        draw, world = self.draw, self.world
        node = world.state.node_objects[draw.choice(sorted(world.state.node_objects))]
        if node.gpus:
            at = draw.randrange(len(node.gpus))
            is_healthy = not node.gpus[at].healthy
            gpu = replace(node.gpus[at], healthy=is_healthy, reason="too hot", next_mode="", is_changing=False)
            if self._has(0.3):
                gpu = close_for_change(node.gpus[at], Mode(draw.choice(("CPX", "SPX")), "NPS1"), self._has(0.5))
            world.tell(NodeChanged(replace(node, gpus=(*node.gpus[:at], gpu, *node.gpus[at + 1 :]))))

    def _change_workload(self) -> None:
        draw, world = self.draw, self.world
        if not world.state.workloads:
            return
        workload = world.state.workloads[draw.choice(sorted(world.state.workloads))]
        changed = draw.choice((
            replace(workload, priority=draw.choice((0, 10, 100))),
            replace(workload, held=not workload.held),
            replace(workload, time_limit_s=draw.choice((0, 60))),
            replace(workload, not_before_s=world.now_s + 5, not_before_why="back-off"),
            replace(workload, preemptible=not workload.preemptible),
        ))  # fmt: skip
        world.tell(WorkloadChanged(changed))

    def _has(self, part: float) -> bool:
        return self.draw.random() < part

    def _amounts(self) -> QueueAmounts:
        quota = self.draw.choice((0, 1_000, 2_500, 4_000, UNLIMITED))
        return QueueAmounts(
            quota, self.draw.choice((UNLIMITED, UNLIMITED, 3_500, 8_000)), self.draw.choice((1, 1, 2, 5))
        )

    def _add_queues(self) -> None:
        draw = self.draw
        parents = {"lab": "", "lab-a": "lab", "lab-b": "lab", "prod": "", "group": "", "mid": "group", "deep": "mid"}
        if self.flavour.wide:
            parents |= {f"team-{number}": "" for number in range(6)}
        for name, parent in parents.items():
            fairness = Fairness(
                draw.choice((None, None, *SharePolicy)),
                draw.choice((None, None, *ReclaimStrategy)),
                draw.choice((None, None, 0, 30)),
                draw.choice((None, None, None, None, 0, 2)),
            )
            models = {"MI300X": GpuModelAmounts(draw.choice((UNLIMITED, 2_000)), draw.choice((UNLIMITED, 4_000)))}
            queue = Queue(
                name,
                parent,
                priority=draw.choice((100, 100, 50, 200)),
                gpu=self._amounts(),
                cpu=QueueAmounts(draw.choice((UNLIMITED, 8_000)), draw.choice((UNLIMITED, UNLIMITED, 24_000))),
                memory=QueueAmounts(draw.choice((UNLIMITED, 65_536))),
                gpu_models=models if self._has(0.25) else {},
                fairness=fairness,
                users=("ada",) if self._has(0.05) else (),
                created_s=draw.randrange(3),
            )
            self.world.tell(QueueChanged(queue))

    def _node(self, name: str) -> Node:
        draw, rules = self.draw, self.flavour.rules
        model = draw.choice(MODELS)
        gpus: list[Gpu] = []
        modes = (Mode("CPX", "NPS1"), Mode("DPX", "NPS1"), Mode("CPX", "NPS4"), Mode("QPX", "NPS1"))
        for number in range(draw.choice((1, 2)) if self.flavour.wide else draw.choice((2, 4, 4, 8))):
            gpu = Gpu(f"gpu-{number}", model, GPU_MODELS[model].memory_mib, healthy=not self._has(0.03))
            if self._has(0.1):
                gpu = replace(gpu, share_grade=draw.choice(("time-slicing", "memory-capped")))
            is_cut = model == "MI300X" and self._has(self.flavour.shares / 2)
            gpus += partition_gpu(gpu, draw.choice(modes)) if is_cut else (gpu,)
        speeds = tuple(tuple(0 if a == b else 64_000 >> (a // 2 != b // 2) for b in range(8)) for a in range(8))
        wiring = DeviceLinks(speeds, (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 1, 2, 2, 3, -1))
        return Node(
            name,
            cpu_milli=draw.choice((16_000, 16_000, 64_000)),
            memory_mib=draw.choice((65_536, 131_072)),
            pods=draw.choice((4, 110, 110)),
            gpus=tuple(gpus),
            extended={"example.com/nic": 2} if self._has(0.4) else {},
            labels={"zone": draw.choice("ab"), "rank": draw.choice(("1", "2", "9"))},
            taints=draw.choice(((Taint("gpu", "only"),), (Taint("slow", "", "PreferNoSchedule"),)))
            if self._has(rules)
            else (),
            wiring=wiring if self._has(0.4) else DeviceLinks(),
        )

    def _workload(self) -> Workload:
        draw, flavour, self._made = self.draw, self.flavour, self._made + 1
        groups: tuple[SubGroup, ...] = ()
        roles = []
        is_large, is_timed = self._has(flavour.planned / 4), self._has(flavour.planned)
        for at in range(draw.choice((1, 1, 1, 1, 2, 3))):
            count = draw.choice((4, 6)) if is_large else draw.choice((1, 1, 1, 2, 3))
            minimum = draw.choice((-1, -1, 1, count - 1)) if count > 1 else -1
            roles.append(Role(random_request(draw, self.flavour), f"role{at}", count, minimum))
        if len(roles) > 1 and self._has(0.4):
            groups = (SubGroup(minimum=draw.choice((-1, 1))), *(SubGroup(f"g{at}") for at in range(len(roles))))
            roles = [replace(role, group=f"g{at}", minimum=max(1, role.needed)) for at, role in enumerate(roles)]
        elif len(roles) > 1 and self._has(0.3):
            roles[0] = replace(roles[0], leads=True)
        now_s = self.world.now_s
        return Workload(
            f"default/w{self._made:03d}",
            tuple(roles),
            queue=draw.choice(self._leaves) if self._has(flavour.queues) else "default",
            user=draw.choice(USERS),
            kind=draw.choice(("batch", "training", "inference", "notebook")),
            priority=draw.choice((0, 0, 0, 50, 100)),
            preemptible=not self._has(0.25),
            submitted_s=now_s,
            held=self._has(0.03),
            not_before_s=now_s + 7 if self._has(0.1) else 0,
            time_limit_s=draw.choice((0, 0, 40, 300)),
            estimate_s=draw.choice((20, 100, 500)) if is_timed else 0,
            preemption_delay_s=15 if self._has(0.1) else 0,
            restart_s=draw.choice((0, 0, 60)),
            stale_grace_s=draw.choice((None, None, 0, 10, -1)),
            stops_others=not self._has(0.1),
            may_go=draw.choice((-1, -1, -1, 0, 1)),
            reservation=draw.choice(("r0", "r1")) if self._has(flavour.reserved / 3) else "",
            expires_s=now_s + 50 if self._has(0.06) else 0,
            learned_s=draw.choice((0, 80)) if is_timed else 0,
            groups=groups,
        )

    def _reservation(self) -> Reservation:
        draw, now_s = self.draw, self.world.now_s
        start_s = draw.choice((0, now_s, now_s + 10, now_s + 80))
        owners = (
            ReservationOwner(),
            ReservationOwner(queue="lab"),
            ReservationOwner(queue="prod"),
            ReservationOwner(user="ada"),
            ReservationOwner(workload="default/w003"),
        )
        found = Reservation(
            f"r{draw.randrange(3)}",
            owner=draw.choice(owners),
            start_s=start_s,
            end_s=draw.choice((0, max(now_s, start_s) + 15, max(now_s, start_s) + 100)),
            at_end=draw.choice((AtEnd.KEEP, AtEnd.EVICT)),
            created_s=now_s,
        )
        nodes = sorted(self.world.state.node_objects)
        match draw.choice(("gpus", "gpus", "gpus", "nodes", "devices")):
            case "gpus":
                models = draw.choice(((), ("MI300X",)))
                selector = draw.choice(((), (("zone", "a"),)))
                return replace(found, gpus=draw.randint(1, 4), node_selector=selector, gpu_models=models)
            case "nodes":
                return replace(found, nodes=(draw.choice(nodes),))
        return replace(found, devices=(PhysicalDevice(draw.choice(nodes), f"gpu-{draw.randrange(4)}"),))


def random_request(draw: random.Random, flavour: Flavour) -> Request:
    """What a pod may ask for."""
    rules = flavour.rules

    def has(part: float) -> bool:
        return draw.random() < part

    zone_a, zone_b = NodeRule("zone", "In", ("a",)), NodeRule("zone", "In", ("b",))
    request = Request(
        cpu_milli=draw.choice((0, 500, 1_000, 3_000)),
        memory_mib=draw.choice((0, 1_024, 8_000)),
        extended=(("example.com/nic", 1),) if has(rules / 2) else (),
        node_rules=draw.choice(((zone_a,), (NodeRule("rank", "Gt", ("1",)),))) if has(rules / 2) else (),
        node_choices=(((zone_b,), (NodeRule("rank", "Lt", ("9",)),)),) if has(rules / 2) else (),
        prefers=(NodePreference(50, (zone_b,)),) if has(rules) else (),
        tolerations=draw.choice(((), (Toleration("gpu", "Exists"),), (Toleration("gpu", "Equal", "only"),))),
        neighbours=random_affinity(draw) if has(rules) else None,
    )
    kind = draw.choice(("fraction", "fraction", "memory", "part", "cpu")) if has(flavour.shares) else "whole"
    match kind:
        case "whole":
            models = draw.choice((("MI300X",), ("MI210", "H100"))) if has(rules / 2) else ()
            return replace(request, gpus=draw.choice((1, 1, 1, 2, 2, 3, 4)), gpu_models=models)
        case "fraction":
            request = replace(
                request, gpus=draw.choice((1, 1, 2)), gpu_milli=draw.choice((10, 100, 250, 500, 700, 990))
            )
            if has(0.3):
                request = replace(request, isolation=draw.choice(("time-slicing", "cu-mask", "mps")))
            return replace(request, least_grade=draw.choice(("cu-mask", "time-slicing"))) if has(0.2) else request
        case "memory":
            memory_mib = draw.choice((2_000, 20_000, 60_000, 98_304))
            return replace(
                request, gpus=draw.choice((1, 1, 2)), gpu_mib=memory_mib, device_mib=draw.choice((0, 0, 100_000))
            )
        case "part":
            profile = draw.choice(("CPX", "CPX", "any", "DPX", "CPX+NPS4"))
            return replace(request, gpus=draw.choice((1, 2, 5)), partition=profile)
    return request


def random_affinity(draw: random.Random) -> PodAffinity:
    """Rules between pods."""
    mark, other = draw.choice(("app=x", "app=y")), draw.choice(("app=x", "app=y"))
    if draw.random() < 0.2:
        port = f"{HOST_PORT_PREFIX}8080"
        return PodAffinity(marks=(port,), apart=(RequiredPodAntiAffinity(port, NODE_LEVEL),))
    return PodAffinity(
        marks=(mark,),
        near=RequiredPodAffinity(other, (draw.choice((NODE_LEVEL, "zone")),)) if draw.random() < 0.3 else None,
        apart=(RequiredPodAntiAffinity(other, draw.choice((NODE_LEVEL, "zone"))),) if draw.random() < 0.3 else (),
        spread=(TopologySpread(mark, draw.choice((NODE_LEVEL, "zone")), draw.choice((1, 2))),)
        if draw.random() < 0.4
        else (),
    )
