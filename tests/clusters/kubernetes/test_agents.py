"""Agents' streams into a scheduler of a real Kubernetes: the Node says which devices, the stream how they are."""

import asyncio
from pathlib import Path

import httpx
import msgspec

from kaiwo.devices.agent_messages import MEDIA_TYPE, Correction, GpuSample, Hello, Sample, encode_line
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.model.gpus.gpu import Share
from tests.clusters.kubernetes.kubectl_cluster import pod_path
from tests.clusters.kubernetes.test_scheduler import bound, scheduled
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

GPUS = tuple(PhysicalGpu(f"gpu-{at}", "amd", "MI300X", order=at, memory_mib=196_608) for at in range(8))
HELLO = Hello("node-1", "1", "boot", Inventory("node-1", GPUS))


def sample(number: int, ill: str) -> Sample:
    gpus = (GpuSample(gpu.id, health="failed" if gpu.id == ill else "healthy", reason="hot") for gpu in GPUS)
    return Sample("node-1", number, 0.0, tuple(gpus))


def test_an_ill_device_gets_no_pod_and_a_correction_is_written_on_its_pod(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=1) as (kubectl, kaiwo), httpx.AsyncClient() as client:
            headers = {"Authorization": f"Bearer {kaiwo.context.access.agent_token}", "Content-Type": MEDIA_TYPE}
            url = f"{kaiwo.url}/api/agents/node-1/reports"
            lines = encode_line(HELLO) + encode_line(sample(1, "gpu-0"))
            assert (await client.post(url, content=lines, headers=headers)).json() == {"lines": 2}
            await kubectl.pod("all", gpus=8)
            await kubectl.pod("most", gpus=6)
            (pod,) = await bound(kubectl, 1)
            granted = msgspec.json.decode(pod["metadata"]["annotations"]["kaiwo.ai/granted-devices"])
            assert pod["metadata"]["name"] == "most"
            assert "gpu-0" not in {share["gpu"] for share in granted}
            other = (Share("gpu-0", 1000, 9),)
            fixed = Correction("node-1", "default", "most", pod["metadata"]["uid"], other, "the kubelet chose so")
            gone = Correction("node-1", "default", "nobody", "no-uid", other, "it is gone by now")
            lines = encode_line(HELLO) + encode_line(fixed) + encode_line(gone)
            assert (await client.post(url, content=lines, headers=headers)).json() == {"lines": 3}
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    now = await kubectl.get(pod_path("most"))
                    if '"gpu-0"' in now["metadata"]["annotations"]["kaiwo.ai/granted-devices"]:
                        break
                    await asyncio.sleep(0.05)

    run(test())
