"""The types of workloads and the priority classes; a higher priority starts first.

Every workload is preemptible unless its owner says otherwise: one that is not must stay inside its queue's quota.
"""

import re

from kaiwo.manifests.text.field_errors import FieldPath, show, suggest

TYPE_PRIORITIES = {"training": 50, "batch": 50, "notebook": 75, "inference": 100}
DEFAULT_TYPE = "batch"
MAX_PRIORITY = 1_000_000_000  # above it are only the two system classes

CLASS_PRIORITIES = {
    "system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000,
    "high": 1000, "high-priority": 1000, "inference": 100,
    "medium": 50, "medium-priority": 50, "normal": 50, "default": 50, "train": 50,
    "low": 10, "low-priority": 10,
}  # fmt: skip


def read_type(value: object, path: FieldPath) -> str:
    if value not in TYPE_PRIORITIES:
        hint = suggest(value, TYPE_PRIORITIES) if isinstance(value, str) else ""
        raise path.error(f"is {show(value)}; write {', '.join(TYPE_PRIORITIES)}{hint}")
    return str(value)


def class_priority(name: str, path: FieldPath, default: int, warnings: list[str]) -> int:
    """The priority of a class, or the number itself; an unknown class gets the default, with a warning."""
    if name in CLASS_PRIORITIES:
        return CLASS_PRIORITIES[name]
    if re.fullmatch(r"-?[0-9]{1,10}", name) and abs(int(name)) <= MAX_PRIORITY:
        return int(name)
    warnings.append(
        path.sentence(
            f"is {show(name)}, which is not a known priority class: priority {default} is used; write a number, "
            f"or one of {', '.join(sorted(CLASS_PRIORITIES))}"
        )
    )
    return default
