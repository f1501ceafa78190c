"""What the journal holds: a base, batches of events, and cycles.

A cycle is rebuilt so: a picture from the base; then, entry by entry, a batch patches it, and a cycle takes its snapshot
at `now_s` and absorbs its plan. At the cycle in question `decide` must give the plan that is kept.
"""

import hashlib

import msgspec

from kaiwo.model.events import Event
from kaiwo.model.plan import Note, Plan, encode_plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy


class Base(msgspec.Struct, frozen=True):
    """The whole state at one moment. `state` is what the writer needs beside the events; the journal never looks in."""

    events: tuple[Event, ...]
    state: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """Events that were applied together, in this order."""

    events: tuple[Event, ...]


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a cycle was decided with. Kept once, until it changes."""

    version: str  # of the code
    policy: Policy = DEFAULT_POLICY
    plugins: tuple[tuple[str, str], ...] = ()  # name and version, in the order in which they are asked


# Written as an array, 60 bytes shorter a cycle: a new field goes to the end and has a default.
class CycleHead(msgspec.Struct, frozen=True, array_like=True):
    """One line about a cycle: what a listing shows."""

    number: int  # rises; numbers may be left out, since an idle cycle is not kept
    now_s: int  # the cluster's clock
    wall_ms: int  # the machine's clock, since 1970
    took_us: int
    steps: int
    starts: int
    evictions: int
    waits: int
    digest: bytes  # of the plan's bytes
    notes: tuple[Note, ...] = ()


class Cycle(msgspec.Struct, frozen=True):
    """One cycle: what it was decided with, and the encoded plan."""

    head: CycleHead
    setting: Setting
    plan: bytes

    @classmethod
    def of(cls, plan: Plan, setting: Setting, *, number: int, now_s: int, wall_ms: int, took_us: int) -> "Cycle":
        """The entry for a plan that was just decided."""
        encoded = encode_plan(plan)
        head = CycleHead(
            number=number,
            now_s=now_s,
            wall_ms=wall_ms,
            took_us=took_us,
            steps=plan.steps,
            starts=len(plan.starts),
            evictions=len(plan.evictions),
            waits=len(plan.waits),
            digest=digest_plan(encoded),
            notes=plan.notes,
        )
        return cls(head, setting, encoded)

    def decode_plan(self) -> Plan:
        """The plan as a value."""
        return msgspec.msgpack.decode(self.plan, type=Plan)


Entry = Base | Batch | Cycle


def digest_plan(encoded: bytes) -> bytes:
    """Equal plans have equal digests, in any process."""
    return hashlib.blake2b(encoded, digest_size=16).digest()
