"""Bound what strangers can take from a server: connections, time of the processor, and bytes of bodies in memory.

A connection is proven once it has carried a request that was answered. When there are too many connections, the oldest
one that is not proven makes room, so that a newcomer who asks at once may be served even during a flood. That happens
only so often: each newcomer may cost a TLS handshake, and a refusal costs next to nothing.
"""

import asyncio
import time
from collections import Counter
from typing import NamedTuple

MIB = 1 << 20
MAX_ADDRESSES = 10_000


class ServerLimits(NamedTuple):
    connections: int = 512
    connections_of_address: int = 128
    replacements_a_second: float = 20.0  # of a connection that is not proven by a new one, when there are too many
    body_bytes: int = 3 * MIB  # a review carries an object twice, and the API server stores at most 1.5 MiB
    free_body_bytes: int = 64 << 10  # of each connection; larger bodies share `large_bodies_bytes`
    large_bodies_bytes: int = 32 * MIB
    head_bytes: int = 16 << 10
    work_share: float = 0.5  # of the process's time that requests from one address may take in the long run
    work_burst_s: float = 2.0  # how much of it they may take at once
    handshake_s: float = 5.0
    head_s: float = 10.0  # from the connection, or from the first byte of a later request, to the end of its head
    idle_s: float = 120.0  # between two requests; the API server keeps its connections open
    body_s: float = 5.0
    review_s: float = 5.0
    write_s: float = 5.0


class ConnectionSlot:
    """One connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_proven = False
        self.is_idle = True  # it waits for the next request
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class ConnectionSlots:
    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._slots: dict[ConnectionSlot, None] = {}  # the oldest first
        self._of_address: Counter[str] = Counter()
        self._next_replacement_s = 0.0

    def __len__(self) -> int:
        return len(self._slots)

    def open(self, address: str) -> ConnectionSlot | None:
        """A slot for a new connection from this address; None: there is no room, and no other makes room now."""
        if self._of_address[address] >= self._limits.connections_of_address:
            is_free = self._drop_unproven(address)
        else:
            is_free = len(self._slots) < self._limits.connections or self._drop_unproven("")
        if not is_free:
            return None
        slot = ConnectionSlot(address)
        self._slots[slot] = None
        self._of_address[address] += 1
        return slot

    def close(self, slot: ConnectionSlot) -> None:
        if slot in self._slots:
            del self._slots[slot]
            self._of_address[slot.address] -= 1
            if not self._of_address[slot.address]:
                del self._of_address[slot.address]

    def all(self) -> list[ConnectionSlot]:
        return list(self._slots)

    def _drop_unproven(self, address: str) -> bool:
        """Cancel the oldest connection, of this address if one is given, that has not been answered yet."""
        now_s = time.monotonic()
        if now_s < self._next_replacement_s:
            return False
        for slot in self._slots:
            if not slot.is_proven and address in ("", slot.address):
                self._next_replacement_s = now_s + 1 / self._limits.replacements_a_second
                slot.cancel()
                self.close(slot)
                return True
        return False


class BodyMemory:
    """Bytes of large bodies that are being read or reviewed. One address may have half of them."""

    def __init__(self, limits: ServerLimits) -> None:
        self._most = limits.large_bodies_bytes
        self._free = limits.free_body_bytes
        self._used: Counter[str] = Counter()  # by address

    def take(self, address: str, before: int, size: int) -> bool:
        """A body that has `before` bytes grows by `size`. False: there is no room for it now."""
        more = self._counted(before + size) - self._counted(before)
        if more and (self._used[address] + more > self._most // 2 or self._used.total() + more > self._most):
            return False
        self._used[address] += more
        return True

    def give_back(self, address: str, size: int) -> None:
        self._used[address] -= self._counted(size)
        if self._used[address] <= 0:
            del self._used[address]

    def _counted(self, size: int) -> int:
        return max(0, size - self._free)


class WorkBudget:
    """Time of this process, by address: whoever has used up his share waits, so that others are answered."""

    def __init__(self, limits: ServerLimits) -> None:
        self._share, self._burst_s = limits.work_share, limits.work_burst_s
        self._debts: dict[str, tuple[float, float]] = {}  # by address: seconds of work, and when they were counted

    def charge(self, address: str, work_s: float) -> None:
        if len(self._debts) >= MAX_ADDRESSES:
            self._debts = {each: debt for each, debt in self._debts.items() if self._debt_s(each) > 0}
        self._debts[address] = (self._debt_s(address) + work_s, time.monotonic())

    def wait_s(self, address: str) -> float:
        """How long work for this address has to wait; 0: it need not."""
        return max(0.0, self._debt_s(address) - self._burst_s) / self._share

    def _debt_s(self, address: str) -> float:
        debt_s, at_s = self._debts.get(address, (0.0, 0.0))
        return max(0.0, debt_s - (time.monotonic() - at_s) * self._share)
