"""Wait for workloads by asking again and again; a server that restarts in between is waited for too."""

import time
from collections.abc import Callable, Sequence

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.server import LostServerError, NoServerError, Server, workload_path
from kaiwo.model.errors import ClusterError
from kaiwo.model.program import State

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
SERVER_GONE_S = 30.0

Connect = Callable[[], Server]
HAS_RUN = (State.RUNNING, State.STOPPING, State.SUCCEEDED)


class Watcher:
    """Asks a server that may be gone for a while."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._missing_since = 0.0

    def detail(self, name: str) -> WorkloadDetail | None:
        """The workload now; None while the server is away."""
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
    """Until every one has reached it, or is over and never will. Returns them as they were then."""
    watcher, found, pause = Watcher(connect), dict[str, WorkloadDetail](), FIRST_PAUSE_S
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        for name in names:
            if name in found:
                continue
            detail = watcher.detail(name)
            if detail is None:
                break
            if is_reached(detail.summary.state) or detail.summary.state.is_over:
                found[name] = detail
                on_reached(detail)
        if len(found) == len(set(names)):
            return [found[name] for name in names]
        if deadline is not None and time.monotonic() >= deadline:
            late = [name for name in names if name not in found]
            raise ClusterError(
                f"waited {timeout_s:g} s in vain for {', '.join(late[:5])}{' and others' if len(late) > 5 else ''}; "
                f"see: kaiwo why {late[0]}"
            )
        time.sleep(min(pause, max(0.0, deadline - time.monotonic()) + 0.01) if deadline is not None else pause)
        pause = min(LONGEST_PAUSE_S, pause * 1.3)
