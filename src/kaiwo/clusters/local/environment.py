"""What a local process finds in its environment.

In:    a placement, its node and its workload's record.   Out: variables.
"""

from kaiwo.clusters.happenings import ordered_pods
from kaiwo.clusters.lifecycle import Placement
from kaiwo.model.gpu import GPU_MODELS
from kaiwo.model.node import Node
from kaiwo.model.program import Record

ARRAY_INDEX_LABEL = "kaiwo.ai/array-index"
NO_DEVICE = "-1"


def environment(record: Record, placement: Placement, node: Node | None, run_dir: str) -> dict[str, str]:
    """The user's own variables, ours, and the devices: those come last, so that nobody sees more than they hold."""
    pod, workload = placement.pod, record.workload
    names = [name for name, _ in ordered_pods(workload)]
    ours = {
        "KAIWO_WORKLOAD": workload.name,
        "KAIWO_POD": pod.name,
        "KAIWO_POD_INDEX": str(names.index(pod.name)),
        "KAIWO_PODS": str(len(names)),
        "KAIWO_NODE": pod.node,
        "KAIWO_ATTEMPT": str(placement.run.attempt),
        "KAIWO_RUN": placement.run.id,
        "KAIWO_RUN_DIR": run_dir,
        "KAIWO_GPUS": ",".join(share.gpu for share in pod.devices),
    }
    if pod.devices:
        ours["KAIWO_GPU_MILLI"] = str(pod.devices[0].milli)  # of each device
        ours["KAIWO_GPU_MIB"] = str(pod.devices[0].mib)
    if ARRAY_INDEX_LABEL in workload.labels:
        ours["KAIWO_ARRAY_INDEX"] = workload.labels[ARRAY_INDEX_LABEL]
    return {**record.program.env, **ours, **visible_devices(node, [share.gpu for share in pod.devices])}


def visible_devices(node: Node | None, held: list[str]) -> dict[str, str]:
    """The vendors' variables for these devices of a node; without devices a GPU node's are hidden."""
    if node is None or not node.gpus:
        return {}
    indices = [index for index, gpu in enumerate(node.gpus) if gpu.id in held]
    listed = ",".join(map(str, indices)) or NO_DEVICE
    model = GPU_MODELS.get(node.gpus[indices[0] if indices else 0].model)
    if (model.vendor if model else _vendor_of_name(node.gpus[0].model)) == "nvidia":
        # By default CUDA puts the fastest device first; the node's order is that of the bus.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed}
    # HIP counts within what ROCr leaves visible, so its list begins at 0 again.
    again = ",".join(map(str, range(len(indices)))) or NO_DEVICE
    return {"ROCR_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": again}


def _vendor_of_name(model: str) -> str:
    is_amd = model.upper().startswith(("MI", "GFX", "AMD", "RADEON", "INSTINCT"))
    return "amd" if is_amd else "nvidia"
