"""A machine with GPUs of both vendors: each under its own resource, and a container sees those of one only."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.devices.agent import node_agent as agents
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import AMD, Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.amd_trees import address

NVIDIA = "nvidia.com/gpu"
OTHERS = tuple(
    PhysicalGpu(f"0000:8{n}:00.0", "nvidia", "H100", order=n, serial=f"GPU-{n}", memory_mib=81_559) for n in range(2)
)


def both(root: str, smi_text: str = "", has_telemetry: bool = True) -> Inventory:
    found = discover(root, smi_text, has_telemetry)
    return replace(found, gpus=(*found.gpus, *OTHERS))


def test_each_vendors_gpus_are_offered_and_given_under_its_own_name(
    kubelet: Kubelet, api: ApiServer, start_agent: Start, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "discover", both)
    start_agent()
    kubelet.wait_for(lambda: len(kubelet.healthy(AMD)) == 4 and len(kubelet.healthy(NVIDIA)) == 2)
    api.bind("a", (Share(address(3), 1000, 196_608),), AMD)
    api.bind("n", (Share(OTHERS[1].id, 1000, 81_559),), NVIDIA)
    names, mine = kubelet.admit("team", "n", "main", NVIDIA, 1)  # bound later, and yet it is nobody else's turn
    kubelet.start_container(NVIDIA, names)
    assert (mine.envs["NVIDIA_VISIBLE_DEVICES"], mine.envs["CUDA_VISIBLE_DEVICES"]) == ("GPU-1", "GPU-1")
    assert not [one.host_path for one in mine.devices if "dri" in one.host_path or "kfd" in one.host_path]
    names, mine = kubelet.admit("team", "a", "main", AMD, 1)
    kubelet.start_container(AMD, names)
    assert [one.host_path for one in mine.devices][:2] == ["/dev/kfd", "/dev/dri/renderD152"]
    assert (mine.envs["NVIDIA_VISIBLE_DEVICES"], mine.envs["CUDA_VISIBLE_DEVICES"]) == ("void", "-1")
