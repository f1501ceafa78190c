"""Random clusters with reservations of every kind, time that passes, and work that comes and goes."""

import random

from msgspec.structs import replace

from kaiwo.model.events import NodeChanged, ReservationChanged, ReservationGone, WorkloadChanged
from kaiwo.model.request import Request
from kaiwo.model.reservation import AtEnd, PhysicalDevice, Reservation, ReservationOwner
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

KINDS = (
    Request(gpus=1, cpu_milli=1000),
    Request(gpus=2, cpu_milli=1000),
    Request(gpus=4, cpu_milli=1000),
    Request(gpus=1, gpu_milli=300, cpu_milli=500),
    Request(gpus=1, gpu_mib=65_536, cpu_milli=500),
    Request(cpu_milli=2000),
)
QUEUES, USERS = ("lab", "batch", "default"), ("ada", "bob")


class ReservedWorld:
    """One world, and the next thing that happens in it."""

    def __init__(self, seed: int, world: World | None = None) -> None:
        self.draw = random.Random(seed)
        self.world = world or World(nodes=0)
        for number in range(self.draw.randint(1, 3)):
            self.world.node(f"node-{number}", gpus=4)
        for name in ("lab", "batch"):
            self.world.queue(name, quota_milli=self.draw.choice((0, 4_000, 16_000)))
        self._made = 0

    def step(self) -> None:
        """Something happens."""
        draw, world = self.draw, self.world
        match draw.choice(
            ("work", "work", "work", "work", "time", "time", "end", "reserve", "reserve", "drop", "node")
        ):
            case "work":
                world.tell(WorkloadChanged(self._work()))
            case "time":
                world.now_s += draw.choice((1, 5, 20, 60))
            case "end" if world.state.pods:
                world.finish(draw.choice(sorted(world.state.pods)))
            case "reserve":
                world.tell(ReservationChanged(self._reservation()))
            case "drop" if world.state.reservations.objects:
                world.tell(ReservationGone(draw.choice(sorted(world.state.reservations.objects))))
            case "node":
                name = draw.choice(sorted(world.state.node_objects))
                node = world.state.node_objects[name]
                at = draw.randrange(len(node.gpus))
                gpu = replace(node.gpus[at], healthy=draw.random() < 0.7)
                world.tell(NodeChanged(replace(node, gpus=(*node.gpus[:at], gpu, *node.gpus[at + 1 :]))))

    def _work(self) -> Workload:
        draw, self._made = self.draw, self._made + 1
        count = draw.choice((1, 1, 1, 2, 3))
        role = Role(draw.choice(KINDS), count=count, minimum=draw.choice((-1, 1)) if count > 1 else -1)
        return Workload(
            f"default/w{self._made:03d}",
            (role,),
            draw.choice(QUEUES),
            user=draw.choice(USERS),
            priority=draw.choice((0, 0, 50)),
            preemptible=draw.random() < 0.7,
            submitted_s=self.world.now_s,
            time_limit_s=draw.choice((0, 0, 10, 60)),
            reservation=draw.choice(("", "", "", "r0", "r1")),
            expires_s=draw.choice((0, 0, 0, self.world.now_s + 30)),
        )

    def _reservation(self) -> Reservation:
        draw, now_s = self.draw, self.world.now_s
        start_s = draw.choice((0, now_s, now_s + 10, now_s + 50))
        place = draw.choice(("gpus", "gpus", "nodes", "devices"))
        nodes = sorted(self.world.state.node_objects)
        owner = draw.choice(
            (
                ReservationOwner(),
                ReservationOwner(queue="lab"),
                ReservationOwner(queue="batch"),
                ReservationOwner(user="ada"),
            )
        )
        found = Reservation(
            f"r{draw.randrange(4)}",
            owner=owner,
            start_s=start_s,
            end_s=draw.choice((0, max(now_s, start_s) + 5, max(now_s, start_s) + 40)),
            at_end=draw.choice((AtEnd.KEEP, AtEnd.KEEP, AtEnd.EVICT)),
            created_s=now_s,
        )
        if place == "gpus":
            return replace(found, gpus=draw.randint(1, 6))
        if place == "nodes":
            return replace(found, nodes=(draw.choice(nodes),))
        return replace(found, devices=(PhysicalDevice(draw.choice(nodes), f"gpu-{draw.randrange(4)}"),))
