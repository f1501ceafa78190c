"""What one pod asks for.

Equal requests share one shape: feasibility and scores are worked out once per request, not once per pod.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.model.gpu import WHOLE_MILLI

ANY_PARTITION = "any"


class Toleration(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Lets a pod onto nodes with a matching taint. An empty key matches every taint."""

    key: str = ""
    operator: str = "Equal"  # Equal | Exists
    value: str = ""
    effect: str = ""  # empty: every effect


class NodeRule(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One requirement on a node's labels."""

    key: str
    operator: str = "In"  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """A node with these labels obeys it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        try:
            have, bound = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return have > bound if self.operator == "Gt" else have < bound


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
    def charge_milli(self) -> int:
        """What a queue is charged for one pod. Of memory and partitions the device decides: see `Share`."""
        return self.gpus * self.gpu_milli if self.is_whole or self.is_fraction else 0
