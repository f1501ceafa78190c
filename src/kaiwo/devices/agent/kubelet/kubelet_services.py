"""Everything that the agent does for the kubelet, in one place.

In:    the machine as it is now and the health of the last second.   Out: plugins that are registered and up to date.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping

from kaiwo.devices.agent.kubelet.allocation_records import Book
from kaiwo.devices.agent.kubelet.allocator import Allocator
from kaiwo.devices.agent.kubelet.announce_devices import Announcer
from kaiwo.devices.agent.kubelet.bound_pods import ApiPods
from kaiwo.devices.agent.kubelet.container_spec import ContainerSpec, container_spec
from kaiwo.devices.agent.kubelet.device_plugin import Plugin, offers_of, why_unfit
from kaiwo.devices.agent.kubelet.kubernetes_api import KubeApi
from kaiwo.devices.agent.kubelet.plugin_registration import Registration
from kaiwo.devices.agent.kubelet.pod_resources import SOCKET, PodResources
from kaiwo.devices.agent.node_agent import AgentOptions
from kaiwo.devices.agent_messages import Correction
from kaiwo.devices.inventory import Health, Inventory
from kaiwo.devices.sharing import Grant, Sharing
from kaiwo.devices.sharing.current_inventory import Present
from kaiwo.devices.sharing.share_types import devices_of
from kaiwo.model.errors import ClusterError

STATE = "/var/lib/kaiwo/agent"
CLEAN_EVERY, DAEMONS_EVERY = 15, 5  # turns


class KubeletSide:
    """Call `tend` every second."""

    def __init__(
        self,
        options: AgentOptions,
        present: Present,
        tell: Callable[[Correction], None],
        say: Callable[[str, str], None],
    ) -> None:
        self.options, self._present, self.inventory = options, present, present.inventory
        folder = options.state_folder or STATE
        self.sharing = Sharing(os.path.join(folder, "sharing"), self.inventory, in_containers=True)
        book = Book(os.path.join(folder, "allocations.json"))
        self.sharing.keep_only([one.owner for one in book.allocations])
        self._notes = [*self.sharing.notes, book.trouble]
        api = KubeApi(options.api, options.account)
        self.announcer = Announcer(api, options.node, say)
        resources = PodResources(options.pod_resources or SOCKET)
        self.allocator = Allocator(options.node, ApiPods(api, options.node), book, self.sharing, resources)
        self.allocator.tell, self.allocator.be_sure_of = tell, self._be_sure_of
        self.allocator.why_unfit = self._why_unfit
        self.plugins: dict[str, Plugin] = {}
        self._taking_up = threading.Lock()  # the kubelet's threads look at the machine, too
        self._offered: tuple[Inventory, Mapping[str, Health]] | None = None
        self.registration = Registration(options.kubelet_folder)

    def tend(self, health: Mapping[str, Health], turn: int) -> Iterator[tuple[str, str]]:
        """What to say, by what it is about."""
        self._take_up()
        if (self.inventory, health) != self._offered:  # 6,400 places for shares made anew cost as much as all the rest
            self._offer(self.inventory, health)
        yield "kubelet", self.registration.tend()
        for note in filter(None, self._notes):
            yield note, note
        self._notes = []
        if turn % DAEMONS_EVERY == 0:
            yield "daemons", "; ".join(self.sharing.tend())
        if turn % CLEAN_EVERY == 0:
            yield "pods", self._clean()

    def close(self) -> None:
        self.announcer.close()
        self.registration.close()

    def _offer(self, inventory: Inventory, health: Mapping[str, Health]) -> None:
        """GPUs may come after the agent, and the last one of a vendor may go."""
        self._offered = (inventory, health)  # first: whoever hears of it asks at once
        found = offers_of(inventory, health)
        for name in found:
            self.plugins.setdefault(name, Plugin(name, self.allocator, self._spec))
        for name, plugin in self.plugins.items():
            plugin.offer(found.get(name, ()))
        self.registration.plugins = tuple(self.plugins.values())

    def _be_sure_of(self, ids: Collection[str]) -> None:
        """Before devices are given away: that they are what they were, under the names that they had."""
        self._present.be_sure_of(ids)
        self._take_up()

    def _why_unfit(self, ids: Collection[str]) -> str:
        known = devices_of(self.inventory)
        health = self._offered[1] if self._offered else {}
        return why_unfit(self.inventory, health, {known[name].id for name in ids if name in known})

    def _take_up(self) -> None:
        with self._taking_up:
            if self._present.inventory is not self.inventory:
                self.inventory = self._present.inventory
                self.sharing.refresh(self.inventory)

    def _clean(self) -> str:
        try:
            self.allocator.forget_gone()
        except ClusterError as error:
            return str(error)
        return ""

    def _spec(self, grant: Grant) -> ContainerSpec:
        return container_spec(grant, self.inventory, self.options.root)
