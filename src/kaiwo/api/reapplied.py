"""Work in documents that lives already: the same is left alone, and other work under its name is refused.

In:    the cluster, what the documents describe.   Out: the names of what is there already, word for word.
"""

from collections.abc import Sequence

from msgspec.structs import fields, replace

from kaiwo.clusters.protocol import Work
from kaiwo.model.errors import ConfigError, NotFoundError
from kaiwo.model.program import Program, Record, State
from kaiwo.model.workload import Workload

# What the cluster makes of a workload while it lives: nobody writes it, or it is used up.
_ITS_LIFE = (
    "submitted_s", "after", "after_failed", "not_before_s", "not_before_why", "checkpoint_s", "broken_since_s",
    "may_go", "learned_s",
)  # fmt: skip
_WORDS = {
    "roles": "its pods and what they ask for",
    "kind": "its type",
    "preemptible": "whether it may be stopped for others",
    "held": "whether it is held (kaiwo hold and kaiwo release change that)",
    "stops_others": "whether others are stopped for it",
    "groups": "its sub-groups",
    "env": "its environment",
    "simulated_s": "how long it pretends to work",
    "is_interactive": "whether somebody sits at its input",
}


def unchanged(cluster: Work, items: Sequence[tuple[Workload, Program]]) -> list[str]:
    """Those that live and are described as they are; a living one that is described otherwise is refused."""
    names = []
    for workload, program in items:
        record = _living(cluster, workload.name)
        if record is None:
            continue
        if other := _differences(record.workload, workload) + _differences(record.program, program):
            raise ConfigError(
                f"workload {workload.name} exists and is {record.state}, and this describes another: different are "
                f"{', '.join(other)}. Work is not changed in place: kaiwo cancel {workload.name}, then apply this "
                "again, or give it another name",
                "name",
            )
        names.append(workload.name)
    return names


def _living(cluster: Work, name: str) -> Record | None:
    try:
        record = cluster.record(name)
    except NotFoundError:
        return None
    # What is stopping may be on its way out for good: the cluster knows, and says so.
    return None if record.state.is_over or record.state is State.STOPPING else record


def _differences(there: Workload | Program, told: Workload | Program) -> list[str]:
    """The fields in which they differ, in words."""
    if isinstance(there, Workload) and isinstance(told, Workload):
        # `expires: 2h` counts from when it is read, and reading takes a moment.
        later_s = (told.expires_s - told.submitted_s) - (there.expires_s - there.submitted_s)
        if told.expires_s and there.expires_s and abs(later_s) <= 1:
            told = replace(told, expires_s=there.expires_s)
        told = replace(told, **{name: getattr(there, name) for name in _ITS_LIFE})
    names = [field.name for field in fields(there)]
    return [_WORDS.get(name) or f"its {_plain(name)}" for name in names if getattr(there, name) != getattr(told, name)]


def _plain(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")
