"""Virtual GPU nodes: objects on the API server whose kubelets are kwok's.

In:    a control plane.   Out: nodes that are ready, and pods on them that run.
"""

import asyncio

import msgspec

from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from tests.controlplane.plane import HERE, Plane

LEASE_S = 40
NODES_A_LEAF = 4


def start_kubelets(plane: Plane) -> None:
    """kwok plays the kubelet of every node."""
    plane.run(
        "kwok", f"--kubeconfig={plane.kubeconfig}", f"--config={HERE / 'stages.yaml'}", "--manage-all-nodes",
        f"--node-lease-duration-seconds={LEASE_S}",
    )  # fmt: skip


async def make_nodes(client: Client, count: int, gpus: int = 8, model: str = "MI300X") -> None:
    """node-1 and on, four to a leaf, with the labels that a GPU operator would put on them."""
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", "amd.com/gpu": str(gpus)}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is virtual, and ready"}
    status = msgspec.json.encode({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}})

    async def make(number: int) -> None:
        name = f"node-{number}"
        labels = {
            "kubernetes.io/hostname": name,
            "amd.com/gpu.product-name": f"AMD_Instinct_{model}_OAM",
            "kaiwo.ai/gpu-sharing": "true",
            "topology.kaiwo.ai/spine": "spine-1",
            "topology.kaiwo.ai/leaf": f"leaf-{(number - 1) // NODES_A_LEAF + 1}",
        }
        body = msgspec.json.encode({"metadata": {"name": name, "labels": labels}})
        await client.write("POST", "/api/v1/nodes", body)
        await client.patch(f"/api/v1/nodes/{name}/status", status, STRATEGIC)
        # Whoever takes the taint of a new node away may not run here.
        await client.patch(f"/api/v1/nodes/{name}", b'{"spec": {"taints": null}}')

    await asyncio.gather(*(make(number) for number in range(1, count + 1)))


async def make_nodes_for(plane: Plane, count: int) -> None:
    """The same, with a client of its own."""
    client = Client(read_kubeconfig(plane.kubeconfig))
    try:
        await make_nodes(client, count)
    finally:
        await client.close()
