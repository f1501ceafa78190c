"""What one pod asks for.

Equal requests share one shape: feasibility and scores are worked out once per request, not once per pod.
"""

import msgspec

from kaiwo.model.affinity import VENDOR_LABEL, NodeAlternatives, NodePreference, NodeRule, PodAffinity
from kaiwo.model.gpu import DEMANDS_LIMITS, LEAST_LIMITED_GRADE, TAKES_TURNS, WHOLE_MILLI, is_grade_enough
from kaiwo.model.partition_modes import smallest_partition_milli

ANY_PARTITION = "any"
# No cluster has so much. Whoever asks for more has asked for this, so that sums stay within 64 bits.
MOST_CPU_MILLI, MOST_MIB, MOST_GPUS = 17_000_000_000, 1 << 34, 16_000_000


class Toleration(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Lets a pod onto nodes with a matching taint. An empty key matches every taint."""

    key: str = ""
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect


class Request(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Whole GPUs, a fraction of each of `gpus` devices, or memory on each of `gpus` devices."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0  # devices
    gpu_milli: int = WHOLE_MILLI  # of each device; 1000 is exclusive
    gpu_mib: int = 0  # of each device; above 0 this is a memory request and `gpu_milli` is not used
    gpu_models: tuple[str, ...] = ()  # any of these; empty: any model
    device_mib: int = 0  # only devices with at least this much memory
    extended: tuple[tuple[str, int], ...] = ()
    node_rules: tuple[NodeRule, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    avoid_nodes: tuple[str, ...] = ()  # nodes on which this work failed to start
    partition: str = ""  # `CPX`, `CPX+NPS4` for that memory mode alone, or `any`; `gpus` then counts partitions
    isolation: str = ""  # of a share: partition | cu-mask | mps | time-slicing; empty: the best there is
    least_grade: str = ""  # what is weaker will not do; empty: any. See `model.isolation`
    # The next three are filled in from the workload, where reservations exist: see snapshot.reserved.
    reservation: str = ""  # only on the GPUs of this reservation
    passes: tuple[str, ...] = ()  # the reservations that it may use
    holds_s: int = 0  # so long it may hold its devices whatever comes; 0: it goes when it is told to
    node_choices: tuple[NodeAlternatives, ...] = ()  # of each, one alternative must hold
    prefers: tuple[NodePreference, ...] = ()  # nodes that are better than others
    neighbours: PodAffinity | None = None  # rules between pods; None: nobody knows it, and it minds nobody

    @property
    def is_whole(self) -> bool:
        """Asks for whole devices."""
        return self.gpus > 0 and self.gpu_mib == 0 and self.gpu_milli == WHOLE_MILLI and not self.partition

    @property
    def is_partition(self) -> bool:
        """Asks for partitions of a profile."""
        return self.gpus > 0 and bool(self.partition)

    @property
    def is_exclusive(self) -> bool:
        """Shares its devices with nobody."""
        return self.is_whole or self.is_partition

    @property
    def is_fraction(self) -> bool:
        """Asks for a fraction of each device."""
        return self.gpus > 0 and self.gpu_mib == 0 and self.gpu_milli < WHOLE_MILLI and not self.partition

    @property
    def is_memory(self) -> bool:
        """Asks for memory on each device."""
        return self.gpus > 0 and self.gpu_mib > 0 and not self.partition

    @property
    def beside(self) -> str:
        """What a share is to its neighbours: it demands that they have limits, it has none itself, or neither."""
        if not (self.least_grade or self.isolation) or not self.gpus or self.is_exclusive:
            return ""  # nearly everybody, so that is asked first
        if self.least_grade and is_grade_enough(self.least_grade, LEAST_LIMITED_GRADE):
            return DEMANDS_LIMITS
        return TAKES_TURNS if self.isolation == "time-slicing" else ""

    @property
    def vendor(self) -> str:
        """Whose devices alone will do, where it asks in a vendor's words: such a node may have another's, too."""
        rules = (rule.key for rule in self.node_rules if rule.key.startswith(VENDOR_LABEL))
        return next(rules, "").removeprefix(VENDOR_LABEL)

    @property
    def charge_depends_on_device(self) -> bool:
        """What a queue is charged is known only when the devices are: see `Share`."""
        return self.is_memory or self.is_partition

    @property
    def charge_milli(self) -> int:
        """What a queue is charged for one pod; of partitions the least that it may be. Of memory the device decides."""
        if self.is_partition:
            return self.gpus * smallest_partition_milli(self.partition, self.gpu_models)
        return self.gpus * self.gpu_milli if not self.is_memory else 0
