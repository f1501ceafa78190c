"""Pods with any containers, admitted in any order: whoever starts is on devices of its own, and Kaiwo knows which."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.agent.kubelet.allocation_records import AllocationRecords
from kaiwo.devices.agent.kubelet.allocator import Allocator
from kaiwo.devices.agent.kubelet.bound_pods import BoundPod, Container, decode_granted, encode_granted
from kaiwo.devices.agent.kubelet.pod_resources import DeviceHolder
from kaiwo.devices.agent_messages import Correction
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share
from tests.devices.fake_inventory import fake_inventory

MOST = 24  # three pods of eight
GPUS = [gpu.id for gpu in fake_inventory(count=MOST).gpus]
RESOURCE = "amd.com/gpu"
KINDS = st.sampled_from(["init", "sidecar"])
PODS = st.tuples(
    st.lists(st.tuples(KINDS, st.integers(1, 2)), max_size=2), st.lists(st.integers(0, 2), min_size=1, max_size=2)
)


def made(name: str, gpus: list[str], first: list[tuple[str, int]], then: list[int]) -> BoundPod:
    """As the scheduler books it: those that stay together, or what is there at the worst moment before."""
    containers = [
        Container(f"i{place}", {RESOURCE: count}, kind == "init") for place, (kind, count) in enumerate(first)
    ]
    containers += [Container(f"c{place}", {RESOURCE: count} if count else {}) for place, count in enumerate(then)]
    staying = most = 0
    for one in containers:
        count = one.devices.get(RESOURCE, 0)
        most = max(most, staying + count)
        staying += 0 if one.is_init else count
    shares = tuple(Share(gpu, 1000, 1) for gpu in gpus[:most])
    return BoundPod(name, "team", name, encode_granted(shares), bound=name, containers=tuple(containers))


class Node:
    """The API server's pods and a kubelet, in memory."""

    def __init__(self, pods: list[Any], folder: str) -> None:
        self.pods = {f"p{number}": made(f"p{number}", GPUS[8 * number :], *one) for number, one in enumerate(pods)}
        self.held: dict[tuple[str, str], list[str]] = {}
        self.told: dict[str, tuple[Share, ...]] = {}
        self.given: dict[tuple[str, str], set[str]] = {}
        self.folder = folder
        self.free = [f"name-{number}" for number in range(MOST)]
        self.restart()

    def restart(self) -> None:
        """The agent: all that it knows is on disk."""
        sharing = GpuSharing(f"{self.folder}/sharing", fake_inventory(count=MOST), IsolationSupport())
        book = AllocationRecords(f"{self.folder}/book.json")
        self.allocator = Allocator("n", self, book, sharing, self)  # type: ignore[arg-type]
        self.allocator.report = self.hear

    def bound(self, is_fresh: bool = False) -> list[BoundPod]:
        return list(self.pods.values())

    def holders(self) -> list[DeviceHolder]:
        kinds = {(name, one.name): one.is_init for name, pod in self.pods.items() for one in pod.containers}
        return [
            DeviceHolder("team", pod, container, RESOURCE, tuple(sorted(names)))
            for (pod, container), names in self.held.items()
            if not kinds[pod, container]
        ]

    def hear(self, line: Correction) -> None:
        self.told[line.pod] = line.devices

    def admit(self, name: str) -> bool:
        """All of its containers, as a kubelet does it; a pod that is refused has failed."""
        reuse: list[str] = []
        for one in self.pods[name].containers:
            count = one.devices.get(RESOURCE, 0)
            names = [*reuse[:count], *self.free[: max(0, count - len(reuse))]]
            self.free = [free for free in self.free if free not in names]
            if not count:
                continue
            try:
                (grant,) = self.allocator.allocate(RESOURCE, [names])
            except ClusterError:
                self.fail(name)
                return False
            self.held[name, one.name] = names
            self.given[name, one.name] = {held.device.id for held in grant.held}
            reuse = [*dict.fromkeys([*reuse, *names])] if one.is_init else [old for old in reuse if old not in names]
        return True

    def start(self, name: str) -> bool:
        for one in self.pods[name].containers:
            if (name, one.name) in self.held:
                try:
                    self.allocator.verify(RESOURCE, self.held[name, one.name])
                except ClusterError:
                    self.fail(name)
                    return False
        return True

    def fail(self, name: str) -> None:
        """Somebody deletes it; nobody else is to have its names before the agent can know."""
        for key in [key for key in self.held if key[0] == name]:
            del self.held[key]
        del self.pods[name]
        self.allocator.release_ended()


def check(node: Node, started: list[str]) -> None:
    owners: dict[str, str] = {}
    for name in started:
        pod = node.pods[name]
        known = {share.gpu for share in node.told.get(name) or decode_granted(pod.assigned)}
        staying: set[str] = set()
        for one in pod.containers:
            mine = node.given.get((name, one.name), set())
            assert mine <= known, "Kaiwo believes something else"
            assert not mine & staying, "a container on the devices of one that stays"
            staying |= set() if one.is_init else mine
        for gpu in known:
            assert owners.setdefault(gpu, name) == name, "two pods on one device"


@given(st.lists(PODS, min_size=1, max_size=3), st.randoms(use_true_random=False), st.floats(0, 1))
def test_whoever_starts_has_devices_of_its_own(pods: list[Any], draw: Any, eager: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(pods, folder)
        waiting, admitted, started = list(node.pods), [], []
        draw.shuffle(waiting)
        while waiting or admitted:
            if draw.random() < 0.2:
                node.restart()
            if admitted and (not waiting or draw.random() < eager):
                name = admitted.pop(draw.randrange(len(admitted)))
                started += [name] if node.start(name) else []
            else:
                name = waiting.pop(0)
                admitted += [name] if node.admit(name) else []
            check(node, started)


@given(st.lists(PODS, min_size=1, max_size=3), st.booleans())
def test_in_the_order_of_binding_all_start(pods: list[Any], is_at_once: bool) -> None:
    """Except those of which a kubelet lists nothing, when there are two: nobody can tell them apart."""
    unlisted = [first for first, then in pods if not any(then) and first and all(kind == "init" for kind, _ in first)]
    with tempfile.TemporaryDirectory() as folder:
        node = Node(pods, folder)
        for name in list(node.pods):
            assert node.admit(name)
            assert is_at_once or len(unlisted) > 1 or node.start(name)
        for name in list(node.pods):
            assert len(unlisted) > 1 or node.start(name)
        assert node.told == {}
        check(node, list(node.pods))


INIT_1, SIDE_1, SIDE_2, INIT_2 = ("init", 1), ("sidecar", 1), ("sidecar", 2), ("init", 2)


@pytest.mark.parametrize(
    ("pods", "story"),
    [
        ([([], [1]), ([SIDE_2, SIDE_1], [2, 2])], "admit p1, start p1"),
        ([([INIT_2], [0, 1]), ([SIDE_2], [1])], "admit p1, start p1"),
        ([([], [1]), ([SIDE_1, INIT_2], [0]), ([SIDE_2], [2])], "admit p1, start p1"),
        (
            [([SIDE_1], [0]), ([SIDE_1, INIT_2], [1]), ([SIDE_2], [0])],
            "admit p1, admit p2, admit p0, start p0, start p2, start p1",
        ),
        (
            [([INIT_1, SIDE_1], [0, 1]), ([SIDE_1, INIT_2], [0]), ([SIDE_2, SIDE_1], [0, 1])],
            "admit p2, start p2, admit p0, start p0",
        ),
        (
            [([INIT_1, SIDE_2], [2]), ([INIT_1, SIDE_2], [0]), ([], [2, 1])],
            "admit p2, admit p0, start p2, start p0, admit p1, start p1",
        ),
        (
            [([INIT_1, SIDE_2], [2]), ([], [2]), ([SIDE_2, SIDE_1], [0, 1])],
            "admit p2, admit p1, start p2, admit p0, start p0, start p1",
        ),
    ],
)
def test_stories_that_went_wrong_once(tmp_path: Path, pods: list[Any], story: str) -> None:
    node, started = Node(pods, str(tmp_path)), list[str]()
    for act, name in (words.split() for words in story.split(", ")):
        if name in node.pods:
            started += [name] if getattr(node, act)(name) and act == "start" else []
        check(node, started)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_kubelet_that_lost_its_list_gets_all_of_a_pod_again(tmp_path: Path, is_restarted: bool) -> None:
    node = Node([([("init", 1), ("sidecar", 1)], [2])], str(tmp_path))
    assert node.admit("p0")
    before = dict(node.given)
    if is_restarted:
        node.restart()
    assert node.admit("p0")  # under other names
    assert node.given == before
    assert node.start("p0")
