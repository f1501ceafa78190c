"""What names of workloads in a request stand for: a workload, all tasks of an array, or some of them.

`default/train` is a workload, `default/sweep-*` every task of an array, `default/sweep[0-99]` those with these indices.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.api.http.problems import invalid, quote
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.names import MAX_TASKS, read_array
from kaiwo.model.errors import ConfigError
from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview.workload_table import ARRAY, STATE_CODE, WorkloadRows

MAX_WORKLOADS = 10 * MAX_TASKS  # that the names of one request may stand for
_INDICES = re.compile(r"([^\[\]]+)\[([0-9,:-]+)\]")


class NamedTasks(NamedTuple):
    """One name of a request, and the workloads that it stands for."""

    name: str
    workloads: tuple[str, ...]
    is_array: bool = False

    @property
    def array_words(self) -> str:
        """`array default/sweep`, or `array default/sweep[0-99]`."""
        return f"array {self.name.removesuffix('-*')}"


def expand_names(rows: WorkloadRows, names: Sequence[str], states: Collection[WorkloadState]) -> list[NamedTasks]:
    """Of arrays only the tasks in these states; a plain name is taken as it is."""
    found = [_expand(rows, name, states) for name in dict.fromkeys(names)]
    if sum(len(each.workloads) for each in found) > MAX_WORKLOADS:
        raise invalid(f"these names stand for more than {MAX_WORKLOADS:,} workloads; name fewer at once", "names")
    return found


def _expand(rows: WorkloadRows, name: str, states: Collection[WorkloadState]) -> NamedTasks:
    match = _INDICES.fullmatch(name)
    if match is None and not name.endswith("-*"):
        return NamedTasks(name, (name,))
    code = rows.arrays.find(match[1] if match else name.removesuffix("-*"))
    if code is None:
        return NamedTasks(name, (), True)  # there is no such array
    wanted = rows.in_states(STATE_CODE[state] for state in states) & (rows.table[ARRAY] == code)
    tasks = [rows.names[at] for at in np.flatnonzero(wanted).tolist()]
    if match is None:
        return NamedTasks(name, tuple(tasks), True)
    try:
        indices = read_array(match[2], FieldPath("", "names")).indices
    except ConfigError as error:
        raise invalid(f"{quote(name)}: {error}", "names") from None
    chosen = {f"{match[1]}-{index}" for index in indices}
    return NamedTasks(name, tuple(task for task in tasks if task in chosen), True)
