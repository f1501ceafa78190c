"""The machine as it is now: looked at again whenever the driver's devices may be others.

In:    a way to look, and the root under which the driver counts its changes.   Out: an inventory that is not out of
       date.
Never: takes what was read while the driver changed it for certain: numbers and names under /dev move then.
"""

import os
import threading
import time
from collections.abc import Callable, Collection

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.share_types import devices_by_id
from kaiwo.model.errors import ClusterError

GENERATION = "sys/class/kfd/kfd/topology/generation_id"
MOST_WAIT_S, PAUSE_S = 5.0, 0.1  # a change of mode takes a second or two
STILL_CHANGING = (
    "the GPUs of this machine are being changed, and which number each of them gets is not settled; try again"
)


class CurrentInventory:
    """One machine's inventory. Ask from any thread."""

    def __init__(self, discover: Callable[[], Inventory], root: str = "/") -> None:
        self._discover, self._path = discover, os.path.join(root, GENERATION)
        self._lock = threading.Lock()
        self.inventory = Inventory("")
        self._generation = ""
        self.refresh()

    def has_changed(self) -> bool:
        """The driver has counted up since the last look: a mode was changed, or a GPU came or went."""
        return self._read_generation() != self._generation

    def refresh(self) -> None:
        """What only moves, such as heat, makes no other inventory."""
        with self._lock:
            # Counted before the look: a change while it goes on is seen afterwards.
            generation = self._read_generation()
            found = self._discover()
            self._generation = generation
            if found != self.inventory:
                self.inventory = found

    def ensure_current(self, ids: Collection[str]) -> None:
        """Before these devices are given to somebody. ClusterError when they do not come to rest."""
        if self.has_changed() or self._lacks_generation() or not set(ids) <= devices_by_id(self.inventory).keys():
            deadline = time.monotonic() + MOST_WAIT_S
            self.refresh()
            while self.has_changed():
                if time.monotonic() > deadline:
                    raise ClusterError(STILL_CHANGING)
                time.sleep(PAUSE_S)
                self.refresh()

    def _lacks_generation(self) -> bool:
        """Devices that are told by a number, and nobody says when the numbers change."""
        return not self._generation and any(gpu.vendor == "amd" for gpu in self.inventory.gpus)

    def _read_generation(self) -> str:
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                return file.read(64)
        except OSError:
            return ""
