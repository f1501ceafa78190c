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
from kaiwo.devices.sharing.share_types import devices_of
from kaiwo.model.errors import ClusterError

GENERATION = "sys/class/kfd/kfd/topology/generation_id"
PATIENCE_S, PAUSE_S = 5.0, 0.1  # a change of mode takes a second or two
UNSETTLED = "the GPUs of this machine are being changed, and which number each of them gets is not settled; try again"


class Present:
    """One machine's inventory. Ask from any thread."""

    def __init__(self, look: Callable[[], Inventory], root: str = "/") -> None:
        self._look, self._path = look, os.path.join(root, GENERATION)
        self._lock = threading.Lock()
        self.inventory = Inventory("")
        self._generation = ""
        self.look_again()

    def has_moved(self) -> bool:
        """The driver has counted up since the last look: a mode was changed, or a GPU came or went."""
        return self._read_generation() != self._generation

    def look_again(self) -> None:
        """What only moves, such as heat, makes no other inventory."""
        with self._lock:
            # Counted before the look: a change while it goes on is seen afterwards.
            generation = self._read_generation()
            found = self._look()
            self._generation = generation
            if found != self.inventory:
                self.inventory = found

    def be_sure_of(self, ids: Collection[str]) -> None:
        """Before these devices are given to somebody. ClusterError when they do not come to rest."""
        if self.has_moved() or self._is_uncounted() or not set(ids) <= devices_of(self.inventory).keys():
            deadline = time.monotonic() + PATIENCE_S
            self.look_again()
            while self.has_moved():
                if time.monotonic() > deadline:
                    raise ClusterError(UNSETTLED)
                time.sleep(PAUSE_S)
                self.look_again()

    def _is_uncounted(self) -> bool:
        """Devices that are told by a number, and nobody says when the numbers change."""
        return not self._generation and any(gpu.vendor == "amd" for gpu in self.inventory.gpus)

    def _read_generation(self) -> str:
        try:
            with open(self._path, encoding="ascii", errors="replace") as file:
                return file.read(64)
        except OSError:
            return ""
