"""Make the environment variables of a local process: the user's own, Kaiwo's, and the visible devices."""

import re
from collections.abc import Iterable

from kaiwo.clusters.embedded.lifecycle import PlacedRun
from kaiwo.manifests.values.names import INDEX_LABEL
from kaiwo.model.gpus.gpu import Gpu, uuid_of, vendor_of
from kaiwo.model.node import Node
from kaiwo.model.workload import NO_RANK, Pod, ordered_pods
from kaiwo.model.workload_record import WorkloadRecord

NO_DEVICE = "-1"


def environment(
    record: WorkloadRecord,
    placement: PlacedRun,
    node: Node | None,
    run_dir: str,
    home: str,
    gang: Iterable[Pod] = (),
) -> dict[str, str]:
    """The device variables come last and override the others, so that no process sees more devices than it holds.

    `gang`: the placed pods of its workload.
    """
    pod, workload = placement.pod, record.workload
    names = [name for name, _ in ordered_pods(workload)]
    ours = {
        "KAIWO_HOME": home,  # so that `kaiwo checkpoint` finds the Kaiwo that runs it
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
    ours |= nearby_hardware(node, [share.gpu for share in pod.devices])
    ours |= rank_variables(pod, gang)
    ours |= {f"KAIWO_BIND_{re.sub('[^A-Z0-9]', '_', key.upper())}": value for key, value in pod.annotations}
    if INDEX_LABEL in workload.labels:
        ours["KAIWO_ARRAY_INDEX"] = workload.labels[INDEX_LABEL]
    return {**record.program.env, **ours, **visible_devices(node, [share.gpu for share in pod.devices])}


def nearby_hardware(node: Node | None, held: list[str]) -> dict[str, str]:
    """The NUMA nodes and the network cards next to its GPUs, where they are known."""
    if node is None or not node.wiring.is_known:
        return {}
    positions = [at for at, gpu in enumerate(node.gpus) if gpu.id in held]
    numa, cards = node.wiring.numa_nodes_of(positions), node.wiring.nic_names_of(positions)
    found = {"KAIWO_NUMA_NODES": ",".join(map(str, numa)), "KAIWO_NICS": ",".join(cards)}
    return {name: text for name, text in found.items() if text}


def rank_variables(pod: Pod, gang: Iterable[Pod]) -> dict[str, str]:
    """Its rank, and the pods and nodes of all ranks in their order; none where the workload has no ranks."""
    ranked = sorted((each for each in gang if each.rank != NO_RANK), key=lambda each: each.rank)
    if not ranked:
        return {}
    own = {"KAIWO_RANK": str(pod.rank)} if pod.rank != NO_RANK else {}
    return own | {
        "KAIWO_WORLD_SIZE": str(len(ranked)),
        "KAIWO_RANK_PODS": ",".join(each.name for each in ranked),
        "KAIWO_RANK_NODES": ",".join(each.node for each in ranked),
    }


def visible_devices(node: Node | None, held: list[str]) -> dict[str, str]:
    """The vendors' variables for these devices of a node; the other devices of a GPU node are hidden."""
    variables: dict[str, str] = {}
    gpus = node.gpus if node else ()
    for vendor in dict.fromkeys(_vendor(gpu) for gpu in gpus):
        mine = [gpu for gpu in gpus if _vendor(gpu) == vendor]
        visible = [_visible_name(gpu.id, index) for index, gpu in enumerate(mine) if gpu.id in held]
        variables |= _variables(vendor, visible)
    return variables


def _variables(vendor: str, visible: list[str]) -> dict[str, str]:
    listed = ",".join(visible) or NO_DEVICE
    if vendor == "nvidia":
        # By default CUDA puts the fastest device first; the node's order is that of the bus.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": listed}
    # HIP counts within what ROCr leaves visible, so its list begins at 0 again.
    hip_listed = ",".join(map(str, range(len(visible)))) or NO_DEVICE
    return {"ROCR_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": hip_listed}


def _visible_name(gpu: str, index: int) -> str:
    """With MIG, CUDA does not count devices by index: there the id ends in the device's UUID."""
    return uuid_of(gpu) or str(index)


def _vendor(gpu: Gpu) -> str:
    """Real machines report it; only on a virtual node can a model be unknown, where its name has to tell."""
    is_amd = gpu.model.upper().startswith(("MI", "GFX", "AMD", "RADEON", "INSTINCT"))
    return vendor_of(gpu) or ("amd" if is_amd else "nvidia")
