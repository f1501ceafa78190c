"""How the tenants of one GPU are kept apart: the methods, and what each is worth.

docs/gpu-sharing.md says what every grade really holds, and how that was found out.
"""

from collections.abc import Mapping

METHODS = ("partition", "cu-mask", "mps", "time-slicing")
# Equal rank: a compute-unit mask and MPS are the same promise by two vendors.
RANKS: Mapping[str, int] = {
    "partition": 4, "memory-capped": 3, "cu-mask": 2, "mps": 2, "time-slicing": 1, "none": 0,
}  # fmt: skip
SHARE_GRADE_LABEL = "kaiwo.ai/gpu-share-grade"  # on a node whose machine does not tell: the best grade of a share


def meets(grade: str, least: str) -> bool:
    """A grade is at least another."""
    return not least or RANKS[grade] >= RANKS[least]
