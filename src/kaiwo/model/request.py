"""The request of one pod: GPUs, CPU, memory, and rules about nodes and devices.

Equal requests share one shape: feasibility and scores are computed once per shape, not once per pod.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from kaiwo.model.affinity import VENDOR_LABEL, NodeAlternatives, NodePreference, NodeRule, PodAffinity
from kaiwo.model.gpus.gpu import (
    DEMANDS_LIMITS,
    MIN_LIMITED_GRADE,
    TAKES_TURNS,
    WHOLE_MILLI,
    Gpu,
    GpuTenant,
    Share,
    ShareLimits,
    ShareRule,
    is_grade_enough,
)
from kaiwo.model.gpus.partition_modes import smallest_partition_milli

ANY_PARTITION = "any"
# No cluster has this much. Larger requests are stored as this, so that sums fit in 64 bits.
MAX_CPU_MILLI, MAX_MIB, MAX_GPUS = 17_000_000_000, 1 << 34, 16_000_000


class Toleration(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Lets a pod onto nodes with a matching taint. An empty key matches every taint."""

    key: str = ""
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect


class Request(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Whole GPUs, a fraction of each of `gpus` devices, memory on each of them, or both: then the larger need binds."""

    LATER_FIELDS: ClassVar[int] = 6  # see `model.digest`

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0  # devices
    gpu_milli: int = WHOLE_MILLI  # of each device; 1000 is exclusive
    gpu_mib: int = 0  # of each device; above 0 this is a memory request, and a `gpu_milli` below 1000 is needed, too
    gpu_models: tuple[str, ...] = ()  # any of these; empty: any model
    device_mib: int = 0  # only devices with at least this much memory
    extended: tuple[tuple[str, int], ...] = ()
    node_rules: tuple[NodeRule, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    avoid_nodes: tuple[str, ...] = ()  # on which this work failed to start
    partition: str = ""  # `CPX`, `CPX+NPS4` (only in that memory mode) or `any`; `gpus` then counts partitions
    isolation: str = ""  # of a share: partition | cu-mask | mps | time-slicing; empty: the best available
    least_grade: str = ""  # the weakest isolation that it accepts; empty: any. See `model.gpu`
    # The next three are filled in from the workload, where reservations exist: see snapshot.reserved_devices.
    reservation: str = ""  # only on the GPUs of this reservation
    passes: tuple[str, ...] = ()  # reservations that it may use
    holds_s: int = 0  # how long it may hold its devices without being evicted; 0: it can be evicted
    node_choices: tuple[NodeAlternatives, ...] = ()  # one alternative of each must hold
    prefers: tuple[NodePreference, ...] = ()  # preferred nodes
    neighbours: PodAffinity | None = None  # rules between pods; None: none concern it
    share_with: ShareRule = ()  # with whom it shares a GPU, by its own rule; empty: anyone
    tenant: GpuTenant | None = None  # filled in where such rules are in use: see snapshot.sharing_rules
    threads_milli: int = 0  # of the multiprocessors that an MPS client may use; 0: as many as its share
    limits: ShareLimits | None = None  # filled in where its queues bound its shares: see snapshot.sharing_rules
    closed_domains: tuple[str, ...] = ()  # of the network, as TOPOLOGY/DOMAIN: see snapshot.network.domain_access
    strategy: str = ""  # filled in where its queue has one: how nodes and devices are chosen; empty: by the policy

    @property
    def is_whole(self) -> bool:
        return self.gpus > 0 and self.gpu_mib == 0 and self.gpu_milli == WHOLE_MILLI and not self.partition

    @property
    def is_partition(self) -> bool:
        return self.gpus > 0 and bool(self.partition)

    @property
    def is_exclusive(self) -> bool:
        return self.is_whole or self.is_partition

    @property
    def is_fraction(self) -> bool:
        return self.gpus > 0 and self.gpu_mib == 0 and self.gpu_milli < WHOLE_MILLI and not self.partition

    @property
    def is_memory(self) -> bool:
        return self.gpus > 0 and self.gpu_mib > 0 and not self.partition

    @property
    def beside(self) -> str:
        """What a share means to the device's other tenants: it demands that they have limits, has none, or neither."""
        if not (self.least_grade or self.isolation) or not self.gpus or self.is_exclusive:
            return ""  # nearly always, so this is checked first
        if self.least_grade and is_grade_enough(self.least_grade, MIN_LIMITED_GRADE):
            return DEMANDS_LIMITS
        return TAKES_TURNS if self.isolation == "time-slicing" else ""

    @property
    def vendor(self) -> str:
        """The vendor whose devices it needs; empty: any. A node may have devices of several vendors."""
        rules = (rule.key for rule in self.node_rules if rule.key.startswith(VENDOR_LABEL))
        return next(rules, "").removeprefix(VENDOR_LABEL)

    @property
    def charge_depends_on_device(self) -> bool:
        """Its queue's charge is known only once the devices are chosen: see `Share`."""
        return self.is_memory or self.is_partition

    @property
    def fraction_milli(self) -> int:
        """The fraction of each device that it asks for beside memory; 0: it asks for memory alone."""
        return self.gpu_milli if self.gpu_milli < WHOLE_MILLI else 0

    @property
    def least_milli(self) -> int:
        """What one pod takes of devices, at least: for memory alone 0, because that depends on the device."""
        if self.is_partition:
            return self.gpus * smallest_partition_milli(self.partition, self.gpu_models)
        return self.gpus * (self.fraction_milli if self.is_memory else self.gpu_milli)

    @property
    def charge_milli(self) -> int:
        """A queue's charge for one pod, at least: no share is free of charge."""
        return max(self.least_milli, self.gpus) if self.is_memory else self.least_milli

    def milli_on(self, device_mib: int) -> int:
        """What a memory request takes of one device of this size: memory rounds down, and the MiB bind."""
        return max(self.fraction_milli, self.gpu_mib * WHOLE_MILLI // max(1, device_mib))

    def charge_on(self, device_mib: int) -> int:
        """A queue's charge for a memory request on one device of this size: memory rounds up."""
        return max(1, self.fraction_milli, -(-self.gpu_mib * WHOLE_MILLI // max(1, device_mib)))


def with_rounded_charges(request: Request, shares: Sequence[Share], gpus: Iterable[Gpu]) -> tuple[Share, ...]:
    """The shares of a memory request with what their queue pays for them: those of 0.1.0 do not say it."""
    if not request.is_memory:
        return tuple(shares)
    sizes = {gpu.id: gpu.memory_mib for gpu in gpus}
    return tuple(
        replace(share, round_milli=max(0, request.charge_on(sizes[share.gpu]) - share.milli))
        if share.gpu in sizes and not share.round_milli
        else share
        for share in shares
    )
