"""Why work waits, in the words of `kaiwo why`, for a cluster that shows them to its people.

In:    the live picture.   Out: sentences by workload, again whenever the reasons changed.
Never: says that something was not tried yet: a moment later it was.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState

EVERY_S = 1.0  # what changes faster is not worth a write
MOST = 1000  # characters
# More nodes would not help against these.
NOT_FOR_WANT_OF_NODES = frozenset(
    (
        Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED, Reason.NOT_BEFORE, Reason.NO_QUEUE,
        Reason.QUEUE_NOT_LEAF, Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA, Reason.RELEASING,
    )
)  # fmt: skip


class Waiting(NamedTuple):
    """Why one workload waits."""

    workload: str
    sentence: str
    would_nodes_help: bool


class Listener(Protocol):
    """Who shows it to people."""

    def explain(self, waiting: Iterable[Waiting]) -> None:
        """What is not named is left as it is."""


class Speaker(Listener, Protocol):
    """One that also says what was done."""

    async def finish(self, within_s: float) -> bool:
        """Until all was said."""


class Sayer:
    """Remembers what it said, so that only news is said."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[tuple[Obstacle, ...], frozenset[str]]] = {}
        self._at_gate: dict[str, tuple[Obstacle, ...]] = {}

    async def run(self, loop: SchedulingLoop, listener: Listener) -> None:
        """Until cancelled."""
        seen = 0
        while True:
            seen = await loop.changed(seen)
            await asyncio.sleep(EVERY_S)
            listener.explain(await loop.ask(self.news))

    def news(self, state: ClusterState) -> list[Waiting]:
        """What waits for other reasons than the last time; the reasons of a class are put into words once."""
        news: list[Waiting] = []
        said, self._said = self._said, {}
        for key, found in state.backlog.by_key.items():
            if not found.obstacles or key in state.backlog.to_try:
                continue
            names = frozenset(name for _, name in found.waiters)
            before, known = said.get(key, ((), frozenset()))
            self._said[key] = (found.obstacles, names)
            fresh = names if before != found.obstacles else names - known
            if fresh:
                words, would_help = put_into_words(found.obstacles)
                news += [Waiting(name, words, would_help) for name in sorted(fresh)]
        before_gate, self._at_gate = self._at_gate, dict(state.backlog.gated)
        for name, obstacles in self._at_gate.items():
            if before_gate.get(name) != obstacles:
                news.append(Waiting(name, *put_into_words(obstacles)))
        return news


def put_into_words(obstacles: tuple[Obstacle, ...]) -> tuple[str, bool]:
    """All the sentences as one, and whether more nodes would help."""
    words = "; ".join(dict.fromkeys(sentence(each) for each in obstacles))
    would_help = all(each.reason not in NOT_FOR_WANT_OF_NODES for each in obstacles)
    return words[:MOST], would_help
