"""What names of workloads in a request stand for: a workload, all tasks of an array, or some of them.

`default/train` is a workload, `default/sweep-*` every task of an array, `default/sweep[0-99]` those with these indices.
Of a name that does not exist: what somebody may have meant.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.api.http.problems import invalid, quote, similar_name
from kaiwo.clusters.protocol import Cluster
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.names import ARRAY_LABEL, MAX_TASKS, read_array
from kaiwo.model.errors import ConfigError, KaiwoError, NotFoundError
from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview.workload_table import ARRAY, STATE_CODE, WorkloadRows

MAX_WORKLOADS = 10 * MAX_TASKS  # that the names of one request may stand for
MAX_SHOWN = 40  # characters of indices in an answer
MAX_NEAR = 1_000  # names to compare with an unknown one: takes some milliseconds
MAX_HINTS = 4  # in one answer: each looks through all names
LENGTHS = 2  # characters by which a similar name may be longer or shorter
_TASKS = re.compile(r"(-\*|\[.*)$")  # after the name of an array
_INDICES = re.compile(r"([^\[\]]+)\[([0-9,:-]+)\]")


class NamedTasks(NamedTuple):
    """One name of a request, and the workloads that it stands for."""

    name: str
    workloads: tuple[str, ...]
    is_array: bool = False

    @property
    def array_words(self) -> str:
        """`array default/sweep`, or `array default/sweep[0-99]`; a long list of indices is left out."""
        array, _, indices = self.name.removesuffix("-*").partition("[")
        return f"array {array}[{indices}" if 0 < len(indices) <= MAX_SHOWN else f"array {array}"


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


def meant_name(cluster: Cluster, name: str) -> str:
    """A task of the array of this name, the same name in another namespace, or a similar name."""
    namespace, _, asked = name.partition("/")
    arrays: dict[str, str] = {}  # the full name of each, and one of its tasks
    known: dict[str, None] = {}
    for record in cluster.records():
        full, array = record.workload.name, record.workload.labels.get(ARRAY_LABEL)
        known[full] = None
        if array:
            home, _, task = full.partition("/")
            arrays.setdefault(f"{home}/{array}", task)
    base = f"{namespace}/{_TASKS.sub('', asked)}"
    if base in arrays:
        listed = f"list them with: kaiwo get workloads {_typed(base)}"
        return f"it is an array: name one of its tasks, such as {arrays[base]}; {listed}"
    known |= dict.fromkeys(arrays)
    if same := next((each for each in known if each.endswith(f"/{asked}")), ""):
        return f"did you mean '{_typed(same)}'?"
    like = {each: each.partition("/")[2] for each in known}
    like = {each: short for each, short in like.items() if abs(len(short) - len(asked)) <= LENGTHS}
    here = {short: each for each, short in like.items() if each.startswith(f"{namespace}/")}
    elsewhere = {short: each for each, short in like.items() if short not in here}
    for names in (here, elsewhere):
        if similar := similar_name(asked, list(names)[:MAX_NEAR]):
            return f"did you mean '{_typed(names[similar])}'?"
    return ""


def with_meant_name(cluster: Cluster, name: str, error: KaiwoError) -> KaiwoError:
    """The same error; one about a name that does not exist says what may have been meant."""
    hint = meant_name(cluster, name) if isinstance(error, NotFoundError) else ""
    return NotFoundError(f"{error}; {hint}") if hint else error


def _typed(name: str) -> str:
    """As people type it."""
    return name.removeprefix("default/")
