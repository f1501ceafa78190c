"""What the kubelet is offered: whole devices by the vendors' resources, and places for shares.

In:    an inventory and the health that was seen last.   Out: offers by resource.
"""

from collections.abc import Mapping

from kaiwo.devices.agent.kubelet.plugin import Offer
from kaiwo.devices.assigned import SHARE_RESOURCE
from kaiwo.devices.inventory import Health, Inventory

RESOURCES = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu"}
SHARES_A_DEVICE = 100  # the smallest share is a hundredth, so the kubelet never runs out before the scheduler does


def offers_of(inventory: Inventory, health: Mapping[str, Health]) -> dict[str, tuple[Offer, ...]]:
    """A device is fit for work as the scheduler sees it: healthy itself, on a GPU that has not failed."""
    whole: dict[str, list[Offer]] = {}
    shares: list[Offer] = []
    for gpu in inventory.gpus:
        resource = RESOURCES.get(gpu.vendor)
        if resource is None:
            continue
        now = health.get(gpu.id, gpu.health)
        for part in gpu.partitions or (gpu,):
            is_fit = now == "healthy" if part is gpu else part.health == "healthy" and now != "failed"
            whole.setdefault(resource, []).append(Offer(part.id, is_fit, gpu.numa))
            shares += [Offer(f"{part.id}::{place}", is_fit, gpu.numa) for place in range(SHARES_A_DEVICE)]
    found = {resource: tuple(offers) for resource, offers in whole.items()}
    return {**found, SHARE_RESOURCE: tuple(shares)} if shares else found
