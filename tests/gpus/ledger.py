"""A cluster of mixed GPUs for the law of the ledger, and the law itself, worked out from pods and nodes alone.

Allocation goes the shipped way: `times_per_device` and `pods_by_devices` say whether it fits, `Placer` takes devices,
and the events of `Picture` are the only thing that changes the arrays.
"""

import random

import numpy as np

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.gpus.device_fit import pods_by_devices, pods_per_device
from kaiwo.model.events import Event, NodeChanged, PodChanged, PodGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, legal_modes, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import MIB, MILLI
from kaiwo.snapshot.working_copy import WorkingCopy

MACHINES = {"a": ("MI300X", 3), "b": ("MI300A", 2), "c": ("MI210", 3), "d": ("MI308X", 2), "e": ("odd", 2)}
ODD_MIB = 46_068
STRATEGIES = ("first-fit", "best-fit", "worst-fit", "round-robin", "load-balanced", "fragmentation-aware")


class Ledger:
    """The cluster, what was done to it, and who holds what."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState()
        self.modes = {(node, gpu): Mode("SPX", "NPS1") for node, (_, count) in MACHINES.items() for gpu in range(count)}
        self.broken: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.made = self.admitted = self.refused = self.recut = self.restarts = 0
        self.placers = [BUILTIN.active(Policy(gpu_strategy=name)) for name in STRATEGIES]
        self.tell(*(self.node(name) for name in MACHINES))

    def tell(self, *events: Event) -> None:
        self.state.patch(events)
        self.state.refresh_tables()

    def node(self, name: str) -> NodeChanged:
        model, count = MACHINES[name]
        gpus = [device for gpu in range(count) for device in self.devices(name, model, gpu)]
        return NodeChanged(Node(name, cpu_milli=10**6, memory_mib=10**6, pods=10**6, gpus=tuple(gpus)))

    def devices(self, node: str, model: str, gpu: int) -> list[Gpu]:
        name, mode = f"gpu-{gpu}", self.modes[node, gpu]
        healthy = f"{node}/{name}" not in self.broken
        size = GPU_MODELS[model].memory_mib if model in GPU_MODELS else ODD_MIB
        return list(partition_gpu(Gpu(name, model, size, healthy), mode))

    # operations

    def step(self) -> str:
        """One random operation; the answer is the node it was about."""
        kind = self.draw.choices(("allocate", "release", "fail", "repartition", "restart"), (46, 44, 5, 4.9, 0.1))[0]
        node: str = getattr(self, kind)()
        return node

    def allocate(self) -> str:
        node, want = self.draw.choice(sorted(MACHINES)), self.some_request()
        working = WorkingCopy(self.state.snapshot(0))
        view = working.view
        row = view.nodes.row[node]
        rows = np.array([row])
        fits = int(pods_by_devices(pods_per_device(view, want, rows), want.gpus)[0]) > 0
        assert fits == self.should_fit(node, want), (node, want, self.held(node))
        if not fits:
            self.refused += 1
            return node
        active = self.draw.choice(self.placers)
        placed = Placer(working, ShapeScores(self.state, view, working, active), active).put(row, want, 1)[0]
        self.check_grant(node, want, placed.devices)
        name = f"p{self.made}"
        self.made += 1
        self.admitted += 1
        self.pods[name] = Pod(f"default/{name}", "main-0", node, devices=placed.devices)
        self.tell(PodChanged(self.pods[name]))
        return node

    def release(self) -> str:
        if not self.pods:
            return "a"
        pod = self.pods.pop(self.draw.choice(list(self.pods)))
        self.tell(PodGone(pod.workload, pod.name))
        return pod.node

    def fail(self) -> str:
        """A GPU breaks with everything on it, or is mended; its pods stay on the books until they are gone."""
        node, gpu = self.draw.choice(list(self.modes))
        self.broken ^= {f"{node}/gpu-{gpu}"}
        self.tell(self.node(node))
        return node

    def repartition(self) -> str:
        """Another mode for a GPU on which nothing is held."""
        node, gpu = self.draw.choice(list(self.modes))
        model = MACHINES[node][0]
        if model in CHIPS and not any(share.gpu.split("-p")[0] == f"gpu-{gpu}" for share in self.held(node)):
            self.modes[node, gpu] = self.draw.choice(legal_modes(model))
            self.tell(self.node(node))
            self.recut += 1
        return node

    def restart(self) -> str:
        """Everything is rebuilt from the objects, and is the same."""
        before = self.state
        self.state = ClusterState()
        self.tell(*before.events())
        for node in MACHINES:
            old, new = before.nodes.row[node], self.state.nodes.row[node]
            count = len(before.node_objects[node].gpus)
            assert (before.nodes.gpus[old, :, :count] == self.state.nodes.gpus[new, :, :count]).all()
            assert (before.nodes.free[old] == self.state.nodes.free[new]).all()
        self.restarts += 1
        return "a"

    def some_request(self) -> Request:
        draw, devices = self.draw, self.draw.choice((1, 1, 1, 2))
        match draw.randrange(4):
            case 0:
                return Request(gpus=devices)
            case 1:
                return Request(gpus=devices, gpu_milli=draw.choice((draw.randint(10, 999), 500, 333, 250)))
            case 2:
                return Request(gpus=devices, gpu_mib=draw.choice((draw.randint(1, 70_000), 2_000, ODD_MIB // 3)))
        return Request(gpus=draw.choice((1, 1, 2, 3)), partition=draw.choice(("CPX", "DPX", "QPX", "TPX", "CPX+NPS4")))

    # the law, from pods and nodes alone

    def held(self, node: str) -> list[Share]:
        return [share for pod in self.pods.values() if pod.node == node for share in pod.devices]

    def free(self, node: str) -> dict[str, tuple[Gpu, int, int]]:
        taken: dict[str, tuple[int, int]] = {}
        for share in self.held(node):
            milli, mib = taken.get(share.gpu, (0, 0))
            taken[share.gpu] = (milli + share.milli, mib + share.mib)
        found = {}
        for gpu in self.state.node_objects[node].gpus:
            milli, mib = taken.get(gpu.id, (0, 0))
            found[gpu.id] = (gpu, gpu.milli - milli, gpu.memory_mib - mib)
        return found

    def should_fit(self, node: str, want: Request) -> bool:
        return sum(self.device_fits(*device, want) for device in self.free(node).values()) >= want.gpus

    def device_fits(self, gpu: Gpu, milli: int, mib: int, want: Request) -> bool:
        if not gpu.healthy:
            return False
        untouched = milli == gpu.milli and mib == gpu.memory_mib
        if want.partition:
            return untouched and (gpu.profile == want.partition or gpu.profile.split("+")[0] == want.partition)
        if gpu.profile:
            return False
        need_milli, need_mib = self.need(gpu, want)
        return untouched if want.is_whole else need_milli <= milli and max(need_mib, 1) <= mib

    def need(self, gpu: Gpu, want: Request) -> tuple[int, int]:
        if want.gpu_mib:
            return want.gpu_mib * 1000 // gpu.memory_mib, want.gpu_mib
        return want.gpu_milli, want.gpu_milli * gpu.memory_mib // 1000

    def check_grant(self, node: str, want: Request, shares: tuple[Share, ...]) -> None:
        """Exactly what was asked, on distinct devices; milli and MiB coupled."""
        gpus = {gpu.id: gpu for gpu in self.state.node_objects[node].gpus}
        assert len({share.gpu for share in shares}) == want.gpus
        for share in shares:
            gpu = gpus[share.gpu]
            whole = (gpu.milli, gpu.memory_mib)
            assert (share.milli, share.mib) == (whole if want.is_exclusive else self.need(gpu, want)), (want, share)

    def check(self, node: str) -> None:
        """No overcommit, no leak: free is capacity less what is held, on each device and each physical GPU."""
        table = self.state.nodes
        row, cuts = table.row[node], {}
        for column, (gpu, milli, mib) in enumerate(self.free(node).values()):
            assert milli >= 0 <= mib, (node, gpu)
            assert (table.gpus[row, MILLI, column], table.gpus[row, MIB, column]) == (milli, mib), (node, gpu)
            used = cuts.get(gpu.parent or gpu.id, (0, 0, 0))
            cuts[gpu.parent or gpu.id] = (
                used[0] + gpu.milli - milli,
                used[1] + gpu.memory_mib - mib,
                used[2] + gpu.milli,
            )
        size = GPU_MODELS[MACHINES[node][0]].memory_mib if MACHINES[node][0] in GPU_MODELS else ODD_MIB
        for name, (milli, mib, parts) in cuts.items():
            assert parts == 1000, (node, name)
            assert milli <= 1000
            assert mib <= size, (node, name)
