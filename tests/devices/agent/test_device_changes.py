"""The devices of a node change under a running agent: modes, GPUs that come late, GPUs that go."""

from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.bound_pods import SHARE_RESOURCE
from kaiwo.devices.agent.kubelet.container_spec import container_spec
from kaiwo.devices.agent.prometheus_endpoint import metrics_text
from kaiwo.devices.discover import discover
from kaiwo.devices.sampling.sampler import Sampler
from kaiwo.devices.sharing.current_inventory import GENERATION
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, IsolationSupport
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.amd_trees import Box, address, rebuild
from tests.waiting import wait_until

PART = f"{address(1)}-p3"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return rebuild(tmp_path / "tree", Box(gpus=2), 1)


def offered(kubelet: Kubelet, count: int) -> None:
    kubelet.wait_for(lambda: len(kubelet.healthy(AMD)) == count)


def renders(answer: object) -> list[str]:
    return [one.host_path for one in answer.devices if "render" in one.host_path]  # type: ignore[attr-defined]


def test_work_starts_on_partitions_that_were_made_for_it(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    start_agent()
    offered(kubelet, 2)
    rebuild(tree, Box(gpus=2, compute="CPX"), 2)
    offered(kubelet, 16)
    api.bind("part", (Share(PART, 125, 24_576),), AMD)
    names, answer = kubelet.admit("team", "part", "main", AMD, 1)
    kubelet.start_container(AMD, names)
    assert (names, renders(answer)) == ([PART], ["/dev/dri/renderD139"])


def test_a_change_that_the_agent_has_not_seen_yet_is_seen_at_allocate(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    start_agent(interval_s=3600.0)
    offered(kubelet, 2)
    api.bind("whole", (Share(address(1), 1000, 196_608),), AMD)
    rebuild(tree, Box(gpus=2, compute="CPX"), 2)
    with pytest.raises(grpc.RpcError, match=f"this machine has no device {address(1)}; it has {address(0)}-p0"):
        kubelet.admit("team", "whole", "main", AMD, 1)


def test_a_container_does_not_start_again_on_a_device_that_is_gone(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    start_agent()
    offered(kubelet, 2)
    api.bind("whole", (Share(address(1), 1000, 196_608),), AMD)
    names, _ = kubelet.admit("team", "whole", "main", AMD, 1)
    kubelet.start_container(AMD, names)
    rebuild(tree, Box(gpus=2, compute="CPX"), 2)
    with pytest.raises(grpc.RpcError, match=f"{address(1)} is gone from this machine"):
        kubelet.start_container(AMD, names)


def test_gpus_that_come_after_the_agent_are_offered(kubelet: Kubelet, tree: Path, start_agent: Start) -> None:
    said: list[str] = []
    (tree.with_name("bare") / "sys").mkdir(parents=True)
    tree.unlink()
    tree.symlink_to(tree.with_name("bare"))
    start_agent(said)
    wait_until(lambda: any("no GPU to offer" in line for line in said))
    assert kubelet.registrations == []
    rebuild(tree, Box(gpus=2), 2)
    offered(kubelet, 2)
    kubelet.wait_for(lambda: len(kubelet.healthy(SHARE_RESOURCE)) == 200)
    assert sorted(kubelet.registrations) == [AMD, SHARE_RESOURCE]  # once each


def test_gpus_that_all_go_are_offered_no_more(kubelet: Kubelet, tree: Path, start_agent: Start) -> None:
    start_agent()
    offered(kubelet, 2)
    (tree.with_name("bare") / Path(GENERATION).parent).mkdir(parents=True)
    (tree.with_name("bare") / GENERATION).write_text("9\n")
    fresh = tree.with_name("fresh")
    fresh.symlink_to(tree.with_name("bare"))
    fresh.replace(tree)
    kubelet.wait_for(lambda: kubelet.devices.get(AMD) == {} == kubelet.devices.get(SHARE_RESOURCE))


def test_a_device_that_went_after_it_was_granted_is_told_and_not_left_out(tmp_path: Path, tree: Path) -> None:
    found = discover(str(tree), has_telemetry=False)
    shares = (Share(address(0), 1000, 196_608), Share(address(1), 1000, 196_608))
    grant = GpuSharing(str(tmp_path / "shares"), found, IsolationSupport(), in_containers=True).prepare(
        GrantRequest("job", shares)
    )
    assert isinstance(grant, Grant)
    assert len(container_spec(grant, found, str(tree)).nodes) == 5
    with pytest.raises(ClusterError, match=f"no longer has the device {address(1)}"):
        container_spec(grant, replace(found, gpus=found.gpus[:1]), str(tree))


def test_a_sample_of_a_gpu_that_has_just_gone_is_no_metric(tree: Path) -> None:
    found = discover(str(tree), has_telemetry=False)
    sampler = Sampler(found, str(tree))
    text = metrics_text(replace(found, gpus=found.gpus[:1]), sampler.sample(0.0))
    sampler.close()
    assert address(0) in text
    assert address(1) not in text
