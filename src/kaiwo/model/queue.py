"""A queue: who may use how much."""

import msgspec

UNLIMITED = -1


class Amounts(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One resource of a queue, in that resource's integer unit (milli-GPU, milli-CPU, MiB)."""

    quota: int = 0  # deserved: what nobody takes away
    limit: int = UNLIMITED  # never more than this
    weight: int = 1  # part of what is left over, against the siblings


class Queue(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A leaf takes work; an inner queue bounds what is below it."""

    name: str
    parent: str = ""
    display_name: str = ""
    priority: int = 100
    gpu: Amounts = Amounts()
    cpu: Amounts = Amounts()
    memory: Amounts = Amounts()


DEFAULT_QUEUE = "default"
