"""Whatever order the kubelet takes: no two pods on one device, and Kaiwo knows who has which."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

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

GPUS = [gpu.id for gpu in fake_inventory(count=8).gpus]
RESOURCE = "amd.com/gpu"


class Node:
    """The API server's pods and the kubelet's list, in memory."""

    def __init__(self, sizes: Sequence[int], folder: str) -> None:
        left = list(GPUS)
        self.pods: dict[str, BoundPod] = {}
        for number, size in enumerate(sizes):
            mine, left = left[:size], left[size:]
            shares = tuple(Share(gpu, 1000, 1) for gpu in mine)
            containers = (Container("main", {RESOURCE: size}),)
            name = f"pod-{number}"
            self.pods[name] = BoundPod(
                name, "team", name, encode_granted(shares), bound=f"{number:02}", containers=containers
            )
        self.held: dict[str, list[str]] = {}
        self.told: dict[str, tuple[Share, ...]] = {}
        self.folder = folder
        self.free = [f"name-{number}" for number in range(len(GPUS))]
        self.restart()

    def restart(self) -> None:
        """The agent: all that it knows is on disk."""
        sharing = GpuSharing(f"{self.folder}/sharing", fake_inventory(count=8), IsolationSupport())
        book = AllocationRecords(f"{self.folder}/book.json")
        self.allocator = Allocator("n", self, book, sharing, self)  # type: ignore[arg-type]
        self.allocator.report = self.hear

    def bound(self, is_fresh: bool = False) -> list[BoundPod]:
        return list(self.pods.values())

    def holders(self) -> list[DeviceHolder]:
        return [DeviceHolder("team", pod, "main", RESOURCE, tuple(sorted(names))) for pod, names in self.held.items()]

    def hear(self, line: Correction) -> None:
        self.told[line.pod] = line.devices

    def allocate(self, pod: str) -> tuple[str, ...]:
        size = self.pods[pod].containers[0].devices[RESOURCE]
        names, self.free = self.free[:size], self.free[size:]
        (grant,) = self.allocator.allocate(RESOURCE, [names])
        self.held[pod] = names
        return tuple(one.device.id for one in grant.held)


@given(
    st.lists(st.integers(1, 2), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.floats(0, 1),
)
def test_every_pod_that_starts_has_devices_of_its_own(sizes: list[int], draw: "object", eager: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = Node(sizes, folder)
        order = list(node.pods)
        draw.shuffle(order)  # type: ignore[attr-defined]
        given: dict[str, tuple[str, ...]] = {}
        started: list[str] = []
        waiting = list(order)
        while waiting or len(started) < len(given):
            is_start = len(started) < len(given) and (not waiting or draw.random() < eager)  # type: ignore[attr-defined]
            if draw.random() < 0.2:  # type: ignore[attr-defined]
                node.restart()
            if is_start:
                pod = next(name for name in given if name not in started)
                node.allocator.verify(RESOURCE, node.held[pod])
                started.append(pod)
            else:
                pod = waiting.pop(0)
                given[pod] = node.allocate(pod)
        check(node, given)


def check(node: Node, given: dict[str, tuple[str, ...]]) -> None:
    every = [gpu for gpus in given.values() for gpu in gpus]
    assert len(set(every)) == len(every), "two pods on one device"
    for name, gpus in given.items():
        known = node.told.get(name) or decode_granted(node.pods[name].assigned)
        assert {share.gpu for share in known} == set(gpus), "Kaiwo believes something else"


def test_names_given_away_again_before_the_pod_is_gone(tmp_path: Path) -> None:
    """A container that failed and is admitted anew under the same names."""
    node = Node([1, 1], str(tmp_path))
    first = node.allocate("pod-0")
    node.free = [*node.held.pop("pod-0"), *node.free]
    del node.pods["pod-0"]
    second = node.allocate("pod-1")
    node.allocator.verify(RESOURCE, node.held["pod-1"])
    assert (first, second) == ((GPUS[0],), (GPUS[1],))
    assert [one.match.pod.name for one in node.allocator._records.allocations] == ["pod-1"]


def test_more_than_is_bound_is_refused(tmp_path: Path) -> None:
    node = Node([1], str(tmp_path))
    node.allocate("pod-0")
    with pytest.raises(ClusterError, match="no pod on this node waits for 2"):
        node.allocator.allocate(RESOURCE, [node.free[:2]])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_kubelet_that_lost_its_list_gets_the_same_devices_again(tmp_path: Path, is_restarted: bool) -> None:
    node = Node([2, 1, 1], str(tmp_path))
    first = node.allocate("pod-0")
    node.allocator.verify(RESOURCE, node.held["pod-0"])
    others = [node.allocate("pod-1")]
    if is_restarted:
        node.restart()
    node.free += node.held["pod-0"]
    assert node.allocate("pod-0") == first  # under other names
    node.allocator.verify(RESOURCE, node.held["pod-0"])
    others.append(node.allocate("pod-2"))
    assert len({*first, *others[0], *others[1]}) == 4
    owners = [grant.owner for grant in node.allocator._sharing.grants]
    assert sorted(owner.split("/")[1] for owner in owners) == ["pod-0", "pod-1", "pod-2"]


def test_old_names_given_to_another_pod_leave_the_grant_in_force(tmp_path: Path) -> None:
    node = Node([1, 1], str(tmp_path))
    node.allocate("pod-0")
    node.free.append(old := node.held["pod-0"][0])
    node.allocate("pod-0")
    node.free = [old]
    node.allocate("pod-1")
    assert sorted(grant.owner.split("/")[1] for grant in node.allocator._sharing.grants) == ["pod-0", "pod-1"]


def test_which_of_two_served_pods_is_asked_for_again_cannot_be_told(tmp_path: Path) -> None:
    node = Node([1, 1], str(tmp_path))
    node.allocate("pod-0")
    node.allocate("pod-1")
    with pytest.raises(ClusterError, match="team/pod-0, team/pod-1 have theirs already"):
        node.allocate("pod-0")
    assert node.allocator.allocate(RESOURCE, [node.held["pod-1"]])[0].held[0].device.id == GPUS[1]  # its own names tell


def test_a_stranger_does_not_start_on_the_devices_of_a_served_pod(tmp_path: Path) -> None:
    node = Node([1], str(tmp_path))
    node.allocate("pod-0")
    names = node.free[:1]
    node.allocator.allocate(RESOURCE, [names])
    node.held["stray"] = names
    with pytest.raises(ClusterError, match="team/stray was about to start on the devices of team/pod-0"):
        node.allocator.verify(RESOURCE, names)
    node.allocator.verify(RESOURCE, node.held["pod-0"])
