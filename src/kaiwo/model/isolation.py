"""How the tenants of one GPU are kept apart: the methods, and what each is worth.

docs/gpu-sharing.md says what every grade really holds, and how that was found out.
"""

from collections.abc import Mapping

from kaiwo.model.gpu import WHOLE_MILLI

METHODS = ("partition", "cu-mask", "mps", "time-slicing")
# Equal rank: a compute-unit mask and MPS are the same promise by two vendors.
RANKS: Mapping[str, int] = {
    "partition": 4, "memory-capped": 3, "cu-mask": 2, "mps": 2, "time-slicing": 1, "none": 0,
}  # fmt: skip
LIMITED = "cu-mask"  # from this grade on a share has compute of its own
DEMANDS, TURNS = "demands", "turns"  # what a share is to its neighbours: see `Request.beside`
BY_TURNS = "time-slicing"  # whoever is alone on the GPU has all of it
SHARERS = 2  # so many who ask for a whole GPU and let others use it, too, may meet on one
SHARED_MILLI = WHOLE_MILLI // SHARERS
SMALL_MILLI = 64  # shares below this may be too small for a mask; which are, their models say
SHARE_GRADE_LABEL = "kaiwo.ai/gpu-share-grade"  # on a node whose machine does not tell: the best grade of a share


def meets(grade: str, least: str) -> bool:
    """A grade is at least another."""
    return not least or RANKS[grade] >= RANKS[least]
