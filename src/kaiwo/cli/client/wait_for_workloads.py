"""Wait for workloads by polling the API, also while the server restarts."""

import time
from collections.abc import Callable, Mapping, Sequence

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.client.api_client import LostServerError, NoServerError, Server, workload_path
from kaiwo.cli.output.formatting import short_name
from kaiwo.model.errors import ClusterError
from kaiwo.model.workload_record import State

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
SERVER_GONE_S = 30.0

Connect = Callable[[], Server]
_HAS_STARTED = (State.RUNNING, State.STOPPING)
_DOES: Mapping[State | None, str] = {
    State.WAITING: "is still waiting",
    State.HELD: "is held",
    State.STARTING: "is still starting",
    State.RUNNING: "is still running",
    State.STOPPING: "is still stopping",
}
MOST_TOLD = 5
HAS_RUN = (State.RUNNING, State.STOPPING, State.SUCCEEDED)


class Watcher:
    """Polls a server that may be away for a while."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._missing_since = 0.0

    def detail(self, name: str) -> WorkloadDetail | None:
        """The current state of a workload; None while the server is away."""
        try:
            server = self._connect()
            detail = server.decode(server.get(workload_path(name)), WorkloadDetail)
        except (NoServerError, LostServerError):
            self._missing_since = self._missing_since or time.monotonic()
            if time.monotonic() - self._missing_since > SERVER_GONE_S:
                raise
            return None
        self._missing_since = 0.0
        return detail


def wait_for(
    connect: Connect,
    names: Sequence[str],
    is_reached: Callable[[State], bool],
    timeout_s: float | None = None,
    on_reached: Callable[[WorkloadDetail], None] = lambda _: None,
) -> list[WorkloadDetail]:
    """Wait until every workload has reached the state or has ended; return each as it was then."""
    watcher, pause = Watcher(connect), FIRST_PAUSE_S
    found, seen = dict[str, WorkloadDetail](), dict[str, State]()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        for name in names:
            if name in found:
                continue
            detail = watcher.detail(name)
            if detail is None:
                break
            seen[name] = detail.summary.state
            if is_reached(detail.summary.state) or detail.summary.state.is_over:
                found[name] = detail
                on_reached(detail)
        if len(found) == len(set(names)):
            return [found[name] for name in names]
        if deadline is not None and time.monotonic() >= deadline:
            late = {name: seen.get(name) for name in names if name not in found}
            raise ClusterError(f"timed out after {timeout_s:g} s: {_lateness(late)}")
        time.sleep(min(pause, max(0.0, deadline - time.monotonic()) + 0.01) if deadline is not None else pause)
        pause = min(LONGEST_PAUSE_S, pause * 1.3)


def _lateness(late: Mapping[str, State | None]) -> str:
    """`train is still running, eval is still waiting; see: kaiwo logs -f train`."""
    told = [f"{short_name(name)} {_DOES.get(state, 'is unknown')}" for name, state in late.items()]
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    first, state = next(iter(late.items()))
    if state is None:
        way_out = "check with: kaiwo status"
    else:
        way_out = f"see: kaiwo {'logs -f' if state in _HAS_STARTED else 'why'} {short_name(first)}"
    return f"{', '.join(told[:MOST_TOLD])}{more}; {way_out}"
