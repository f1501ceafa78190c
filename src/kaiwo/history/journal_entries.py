"""What the journal holds: a base, batches of events, and cycles.

To rebuild a cycle, make a cluster state from the base; then, entry by entry, patch it with a batch, or take the
snapshot of a cycle at `now_s` and record its plan. At the cycle in question `decide` must give the journaled plan.
"""

import hashlib

import msgspec

from kaiwo.model.events import Event
from kaiwo.model.plan import Note, Plan, encode_plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy


class Base(msgspec.Struct, frozen=True):
    """The whole cluster state. `state` is what the writer needs besides the events; the journal does not read it."""

    events: tuple[Event, ...]
    state: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """Events that were applied together, in this order."""

    events: tuple[Event, ...]


class Setting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code, policy and plugins that a cycle was decided with. Written only when they changed."""

    version: str  # of the code
    policy: Policy = DEFAULT_POLICY
    plugins: tuple[tuple[str, str], ...] = ()  # name and version, in the order of their calls


# Written as an array, which saves 60 bytes a cycle: a new field goes to the end and has a default.
class CycleHead(msgspec.Struct, frozen=True, array_like=True):
    number: int  # increases; idle cycles are not journaled, so numbers may be missing
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
    head: CycleHead
    setting: Setting
    plan: bytes

    @classmethod
    def of(cls, plan: Plan, setting: Setting, *, number: int, now_s: int, wall_ms: int, took_us: int) -> "Cycle":
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
        return msgspec.msgpack.decode(self.plan, type=Plan)


Entry = Base | Batch | Cycle


def digest_plan(encoded: bytes) -> bytes:
    """Equal plans have equal digests, in any process."""
    return hashlib.blake2b(encoded, digest_size=16).digest()
