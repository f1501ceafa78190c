"""Keep ended work for a time and up to a size, and remember where each attempt ran and how it ended.

A name that is submitted again keeps its earlier submissions. All tasks of an array that were submitted together are one
record: they are forgotten together, after the last of them has ended. Changes only the transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import TrackedWorkload
from kaiwo.clusters.embedded.state import EmbeddedState, SubmissionKey, Transaction
from kaiwo.model.workload import Pod
from kaiwo.model.workload_record import AttemptRecord, PodPlacement

ATTEMPTS_KEPT = 50  # of one submission
RECORD_BYTES = 4096  # what one ended workload counts for besides its run folders: its rows, and its place in memory
FORGOTTEN_AT_ONCE = 2_000  # workloads in one transaction: others must not wait long for it


class Retention(msgspec.Struct, frozen=True):
    """How long, and up to which size, ended work is kept; the oldest is forgotten first."""

    keep_s: int = 30 * 86_400
    keep_bytes: int = 5 * 10**9


DEFAULT_RETENTION = Retention()


def keep_earlier(transaction: Transaction, name: str) -> int:
    """Make room for a new submission of this name. Returns its number."""
    tracked = transaction.state.workloads.get(name)
    if tracked is not None:
        transaction.put_earlier(tracked)
        transaction.drop_workload(name)
    elif name not in transaction.state.earlier_of:  # most names are new
        return 1
    return max(transaction.state.submissions_of(name), default=0) + 1


def forget(transaction: Transaction, names: Iterable[str]) -> None:
    """Forget workloads with all their submissions and logs."""
    for name in names:
        for number in transaction.state.submissions_of(name):
            _forget_submission(transaction, (name, number))


def forget_old(transaction: Transaction, retention: Retention, used_bytes: int, bytes_of: Callable[[str], int]) -> bool:
    """Forget what is older than the retention, and the oldest beyond its size. True: there is more to forget.

    `used_bytes`: the size of the run folders of ended work; `bytes_of`: that of one run.
    """
    state = transaction.state
    used_bytes += RECORD_BYTES * state.ended_count
    left = FORGOTTEN_AT_ONCE
    for members in _oldest_first(state):
        is_old = max(map(state.ended_s, members)) + retention.keep_s <= transaction.now_s
        if not is_old and used_bytes <= retention.keep_bytes:
            return False
        for key in islice(members, left):
            used_bytes -= RECORD_BYTES + sum(map(bytes_of, state.runs_of.get(key, ())))
            _forget_submission(transaction, key)
            left -= 1
        if left <= 0:
            return True
    return False


def record_start(transaction: Transaction, tracked: TrackedWorkload, pods: Sequence[Pod]) -> None:
    """These pods start in the current attempt of a workload."""
    key, record = _key(tracked), tracked.record
    attempt = transaction.state.attempts.get((*key, record.attempt))
    attempt = attempt or AttemptRecord(record.attempt, record.started_s)
    placed = {each.pod: each for each in attempt.pods}
    placed |= {pod.name: PodPlacement(pod.name, pod.node, pod.devices) for pod in pods}
    transaction.put_attempt(key, replace(attempt, pods=tuple(placed.values())))
    transaction.drop_attempt(key, record.attempt - ATTEMPTS_KEPT)


def record_eviction(transaction: Transaction, tracked: TrackedWorkload, message: str) -> None:
    _change(transaction, tracked, message=message)


def record_end(transaction: Transaction, tracked: TrackedWorkload, message: str, exit_code: int) -> None:
    """The last pod of the current attempt is gone."""
    attempt = transaction.state.attempts.get((*_key(tracked), tracked.record.attempt))
    if attempt is not None and not attempt.ended_s:
        message = message or attempt.message
        _change(transaction, tracked, message=message, exit_code=exit_code, ended_s=transaction.now_s)


def record_peak(transaction: Transaction, tracked: TrackedWorkload, peak_mib: int) -> None:
    """A pod of the current attempt used so much memory; the largest amount of any pod is kept."""
    attempt = transaction.state.attempts.get((*_key(tracked), tracked.record.attempt))
    if attempt is not None and peak_mib > attempt.peak_mib:
        _change(transaction, tracked, peak_mib=peak_mib)


def attempts_of(state: EmbeddedState, key: SubmissionKey) -> list[AttemptRecord]:
    """The kept attempts of a submission, the first one first."""
    tracked = state.submission(key)
    latest = 0 if tracked is None else tracked.record.attempt
    numbers = range(max(1, latest - ATTEMPTS_KEPT), latest + 1)
    return [found for number in numbers if (found := state.attempts.get((*key, number))) is not None]


def _change(transaction: Transaction, tracked: TrackedWorkload, **fields: object) -> None:
    key = _key(tracked)
    attempt = transaction.state.attempts.get((*key, tracked.record.attempt))
    if attempt is not None:
        transaction.put_attempt(key, replace(attempt, **fields))


def _oldest_first(state: EmbeddedState) -> Iterator[list[SubmissionKey]]:
    """The members of each record, without arrays of which a task has not ended. The state may change meanwhile."""
    for group in list(islice(state.ended, FORGOTTEN_AT_ONCE)):
        tasks = [state.workloads[task] for task in state.tasks_of.get(group[0], ())]
        if not any(task.record.submission == group[1] and not task.is_over for task in tasks):
            yield list(state.ended[group])


def _forget_submission(transaction: Transaction, key: SubmissionKey) -> None:
    state = transaction.state
    tracked = state.submission(key)
    for run_id in list(state.runs_of.get(key, ())):
        transaction.drop_run(run_id)
    latest = 0 if tracked is None else tracked.record.attempt
    for number in range(max(1, latest - ATTEMPTS_KEPT), latest + 1):
        transaction.drop_attempt(key, number)
    if key in state.earlier:
        transaction.drop_earlier(key)
    else:
        transaction.drop_workload(key[0])


def _key(tracked: TrackedWorkload) -> SubmissionKey:
    return tracked.workload.name, tracked.record.submission
