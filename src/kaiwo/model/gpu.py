"""A GPU, a share of one, and the models we know.

Quantities are integers: a whole GPU is 1000 milli, memory is in MiB, so sums are exact.

Also: How the tenants of one GPU are kept apart: the methods, and what each is worth.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kaiwo.model.gpu_models import GPU_MODELS

WHOLE_MILLI = 1000


class Gpu(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One schedulable device of a node: a whole GPU or one of its partitions."""

    id: str  # unique on its node: a PCI address, or `gpu-3` on a virtual node
    model: str
    memory_mib: int
    healthy: bool = True
    reason: str = ""  # why it is not healthy
    parent: str = ""  # the physical GPU of which it is a partition; empty: it is whole
    profile: str = ""  # of a partition: `CPX+NPS4`, `1g.10gb`
    milli: int = WHOLE_MILLI  # its part of the physical GPU; those of all partitions make 1000
    share_grade: str = ""  # the best isolation that a share of it can have, where its machine told
    vendor: str = ""  # where its machine told, and its model is none that we know


class Share(msgspec.Struct, gc=False, frozen=True):
    """What one pod holds of one device."""

    gpu: str
    milli: int
    mib: int


def vendor_of(gpu: Gpu) -> str:
    """Who made it; empty: nobody tells."""
    known = GPU_MODELS.get(gpu.model)
    return known.vendor if known else gpu.vendor


def are_mixed(gpus: Iterable[Gpu]) -> bool:
    return len({vendor_of(gpu) for gpu in gpus} - {""}) > 1


# Equal rank: a compute-unit mask and MPS are the same promise by two vendors.
GRADE_RANKS: Mapping[str, int] = {
    "partition": 4, "memory-capped": 3, "cu-mask": 2, "mps": 2, "time-slicing": 1, "none": 0,
}  # fmt: skip
LEAST_LIMITED_GRADE = "cu-mask"  # from this grade on a share has compute of its own
DEMANDS_LIMITS, TAKES_TURNS = "demands", "turns"  # what a share is to its neighbours: see `Request.beside`
TIME_SLICING = "time-slicing"  # whoever is alone on the GPU has all of it
MOST_SHARERS = 2  # so many who ask for a whole GPU and let others use it, too, may meet on one
SHARED_MILLI = WHOLE_MILLI // MOST_SHARERS
SMALL_MILLI = 64  # shares below this may be too small for a mask; which are, their models say
SHARE_GRADE_LABEL = "kaiwo.ai/gpu-share-grade"  # on a node whose machine does not tell: the best grade of a share


def is_grade_enough(grade: str, least: str) -> bool:
    return not least or GRADE_RANKS[grade] >= GRADE_RANKS[least]
