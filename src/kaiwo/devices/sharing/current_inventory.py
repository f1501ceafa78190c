"""Keep the inventory current: discover again whenever the driver's devices may have changed.

Never: trusts an inventory that was read while the driver changed its devices, since indices and /dev names move then.
"""

import os
import threading
import time
from collections.abc import Callable, Collection

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.share_types import devices_by_id
from kaiwo.model.errors import ClusterError

GENERATION = "sys/class/kfd/kfd/topology/generation_id"
MAX_WAIT_S, PAUSE_S = 5.0, 0.1  # a mode change takes a second or two
STILL_CHANGING = "the GPUs of this machine are being reconfigured, and their indices are not final; try again"


class CurrentInventory:
    def __init__(self, discover: Callable[[], Inventory], root: str = "/") -> None:
        self._discover, self._path = discover, os.path.join(root, GENERATION)
        self._lock = threading.Lock()
        self.inventory = Inventory("")
        self._generation = ""
        self.refresh()

    def has_changed(self) -> bool:
        """True if KFD's generation has changed: a mode changed, or a GPU came or went."""
        return self._read_generation() != self._generation

    def refresh(self) -> None:
        """Discover again; keep the same object if nothing changed."""
        with self._lock:
            # Read the generation first, so that a change during discovery is noticed.
            generation = self._read_generation()
            found = self._discover()
            self._generation = generation
            if found != self.inventory:
                self.inventory = found

    def ensure_current(self, ids: Collection[str]) -> None:
        """Make sure that these devices are up to date; ClusterError if they keep changing."""
        # Without a generation, AMD's driver does not report when indices change.
        is_unwatched = not self._generation and any(gpu.vendor == "amd" for gpu in self.inventory.gpus)
        if not is_unwatched and not self.has_changed() and set(ids) <= devices_by_id(self.inventory).keys():
            return
        deadline = time.monotonic() + MAX_WAIT_S
        self.refresh()
        while self.has_changed():
            if time.monotonic() > deadline:
                raise ClusterError(STILL_CHANGING)
            time.sleep(PAUSE_S)
            self.refresh()

    def _read_generation(self) -> str:
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                return file.read(64)
        except OSError:
            return ""
