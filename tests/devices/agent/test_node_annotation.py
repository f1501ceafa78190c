"""The scheduler hears of a node's devices through the Node, when they change and only then."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.devices.agent.kubelet import node_annotation
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.runtime.nodes.local_node import devices_of
from tests.devices.agent.conftest import Start
from tests.devices.agent.fake_kubelet import ApiServer, Kubelet
from tests.devices.amd_trees import PCI, address
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_annotation, "RETRY_S", 0.05)


def patched(api: ApiServer, count: int) -> tuple[Gpu, ...]:
    """The devices in the newest patch, once there are so many."""
    with api.changed:
        assert api.changed.wait_for(lambda: len(api.patches) >= count, PATIENCE_S)
        path, kind, body = api.patches[-1]
    assert (path, kind) == ("/api/v1/nodes/node-1", "application/merge-patch+json")
    note: Any = body["metadata"]["annotations"]["kaiwo.ai/devices"]
    return msgspec.json.decode(note, type=tuple[Gpu, ...])


def test_devices_are_told_once_and_again_when_one_falls_ill(
    kubelet: Kubelet, api: ApiServer, tree: Path, start_agent: Start
) -> None:
    agent = start_agent(devices_of=devices_of)
    first = patched(api, 1)
    assert [gpu.id for gpu in first] == [address(number) for number in range(4)]
    assert {(gpu.model, gpu.memory_mib, gpu.healthy) for gpu in first} == {("MI300X", 196_608, True)}
    (tree / PCI / address(2) / "ras" / "umc_err_count").write_text("ue: 3\nce: 0\n")
    ill = [gpu for gpu in patched(api, 2) if not gpu.healthy]
    assert [gpu.id for gpu in ill] == [address(2)]
    assert "3 uncorrectable errors" in ill[0].reason
    number = agent.sample.number
    wait_until(lambda: agent.sample.number >= number + 5)
    assert len(api.patches) == 2


def test_an_api_server_that_is_away_is_told_later(kubelet: Kubelet, api: ApiServer, start_agent: Start) -> None:
    api.is_rude = True
    said: list[str] = []
    start_agent(said, devices_of=devices_of)
    wait_until(lambda: any("503" in line for line in said))
    api.is_rude = False
    assert len(patched(api, 1)) == 4
