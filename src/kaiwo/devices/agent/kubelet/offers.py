"""What the kubelet is offered: whole devices by the vendors' resources, and places for shares.

In:    an inventory and the health that was seen last.   Out: offers by resource.
"""

from collections.abc import Collection, Mapping

from kaiwo.devices.agent.kubelet.plugin import Offer
from kaiwo.devices.assigned import SHARE_RESOURCE
from kaiwo.devices.inventory import Health, Inventory, Partition, PhysicalGpu

RESOURCES = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu"}
SHARES_A_DEVICE = 100  # the smallest share is a hundredth, so the kubelet never runs out before the scheduler does


def offers_of(inventory: Inventory, health: Mapping[str, Health]) -> dict[str, tuple[Offer, ...]]:
    """Every device of a vendor that the kubelet knows."""
    whole: dict[str, list[Offer]] = {}
    shares: list[Offer] = []
    for gpu in inventory.gpus:
        resource = RESOURCES.get(gpu.vendor)
        if resource is None:
            continue
        now = health.get(gpu.id, gpu.health)
        for part in gpu.partitions or (gpu,):
            is_well = is_fit(gpu, part, now)
            whole.setdefault(resource, []).append(Offer(part.id, is_well, gpu.numa))
            shares += [Offer(f"{part.id}::{place}", is_well, gpu.numa) for place in range(SHARES_A_DEVICE)]
    found = {resource: tuple(offers) for resource, offers in whole.items()}
    return {**found, SHARE_RESOURCE: tuple(shares)} if shares else found


def is_fit(gpu: PhysicalGpu, part: PhysicalGpu | Partition, now: Health) -> bool:
    """For work, as the scheduler sees it: healthy itself, on a GPU that has not failed."""
    return now == "healthy" if part is gpu else part.health == "healthy" and now != "failed"


def why_unfit(inventory: Inventory, health: Mapping[str, Health], ids: Collection[str]) -> str:
    """The first of these devices that takes no new work, in words; empty when all do."""
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            if part.id in ids and not is_fit(gpu, part, health.get(gpu.id, gpu.health)):
                return f"{part.id} is not healthy any more (kaiwo gpus says why); delete the pod to have it elsewhere"
    return ""
