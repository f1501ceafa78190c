"""Run everything that the agent does for the kubelet: device plugins, registration, allocation, node annotation."""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping

from kaiwo.devices.agent.kubelet.allocation_records import AllocationRecords
from kaiwo.devices.agent.kubelet.allocator import Allocator, GrantCheck
from kaiwo.devices.agent.kubelet.bound_pods import ApiPodLister
from kaiwo.devices.agent.kubelet.container_spec import ContainerSpec, container_spec
from kaiwo.devices.agent.kubelet.device_plugin import DevicePlugin, PluginRegistration, offered_devices, why_unusable
from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.devices.agent.kubelet.node_annotation import NodeAnnotationWriter
from kaiwo.devices.agent.kubelet.pod_events import PodEventWriter
from kaiwo.devices.agent.kubelet.pod_resources import SOCKET, PodResources
from kaiwo.devices.agent.options import AgentOptions
from kaiwo.devices.agent_messages import Correction, HeldDevices
from kaiwo.devices.inventory import Health, Inventory
from kaiwo.devices.sharing.current_inventory import CurrentInventory
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, devices_by_id
from kaiwo.model.errors import ClusterError

STATE = "/var/lib/kaiwo/agent"
RELEASE_EVERY, DAEMONS_EVERY = 15, 5  # samples


class KubeletServices:
    """Call `update` with every sample."""

    def __init__(
        self,
        options: AgentOptions,
        current: CurrentInventory,
        report: Callable[[Correction], None],
        log: Callable[[str, str], None],
    ) -> None:
        self.options, self._current, self.inventory = options, current, current.inventory
        folder = options.state_folder or STATE
        self.sharing = GpuSharing(
            os.path.join(folder, "sharing"), self.inventory, in_containers=True, may_use_mps=options.mps
        )
        records = AllocationRecords(os.path.join(folder, "allocations.json"))
        self.sharing.release_others([one.owner for one in records.allocations])
        self._notes = [*self.sharing.notes, records.problem]
        api = KubernetesApi(options.api, options.account)
        self.annotation = NodeAnnotationWriter(api, options.node, log)
        resources = PodResources(options.pod_resources or SOCKET)
        self.allocator = Allocator(options.node, ApiPodLister(api, options.node), records, self.sharing, resources)
        self.allocator.report, self.allocator.ensure_current = report, self._ensure_current
        self.allocator.why_unusable = self._why_unusable
        self.allocator.events = PodEventWriter(api, options.node, log)
        if options.grant_keys:
            self.allocator.grant_check = _grant_verifier(api, options)
        self.plugins: dict[str, DevicePlugin] = {}
        self._inventory_lock = threading.Lock()  # also used on the kubelet's threads
        self._offered: tuple[Inventory, Mapping[str, Health]] | None = None
        self.registration = PluginRegistration(options.kubelet_folder)

    def update(self, health: Mapping[str, Health], number: int) -> Iterator[tuple[str, str]]:
        """Bring everything up to date; yields (subject, text) to log."""
        self._use_current_inventory()
        if (self.inventory, health) != self._offered:  # making 6,400 shares takes as long as all the rest
            self._offer(self.inventory, health)
        yield "kubelet", self.registration.ensure_registered()
        for note in filter(None, self._notes):
            yield note, note
        self._notes = []
        if number % DAEMONS_EVERY == 0:
            yield "daemons", "; ".join(self.sharing.maintain_daemons())
        if number % RELEASE_EVERY == 0:
            yield "pods", self._release_ended()

    def held(self) -> tuple[HeldDevices, ...] | None:
        """Which pods hold which devices; None if grants are not verified, so that the list says too little."""
        return self.allocator.held() if self.options.grant_keys else None

    def close(self) -> None:
        self.annotation.close()
        self.registration.close()

    def _offer(self, inventory: Inventory, health: Mapping[str, Health]) -> None:
        """Offer the devices; GPUs may appear later, and the last one of a vendor may go."""
        self._offered = (inventory, health)  # first, since the kubelet reacts at once
        found = offered_devices(inventory, health)
        for name in found:
            self.plugins.setdefault(name, DevicePlugin(name, self.allocator, self._spec))
        for name, plugin in self.plugins.items():
            plugin.offer(found.get(name, ()))
        self.registration.plugins = tuple(self.plugins.values())

    def _ensure_current(self, ids: Collection[str]) -> None:
        self._current.ensure_current(ids)
        self._use_current_inventory()

    def _why_unusable(self, ids: Collection[str]) -> str:
        known = devices_by_id(self.inventory)
        health = self._offered[1] if self._offered else {}
        return why_unusable(self.inventory, health, {known[name].id for name in ids if name in known})

    def _use_current_inventory(self) -> None:
        with self._inventory_lock:
            if self._current.inventory is not self.inventory:
                self.inventory = self._current.inventory
                self.sharing.refresh(self.inventory)

    def _release_ended(self) -> str:
        try:
            self.allocator.release_ended()
        except ClusterError as error:
            return str(error)
        return ""

    def _spec(self, grant: Grant) -> ContainerSpec:
        return container_spec(grant, self.inventory, self.options.root, self.options.device_folder)


def _grant_verifier(api: KubernetesApi, options: AgentOptions) -> GrantCheck:
    """Imported here: an agent that does not verify needs no cryptography."""
    from kaiwo.devices.agent.kubelet.grant_verifier import GrantVerifier

    return GrantVerifier(api, options.grant_keys, options.node, options.schedulers)
