"""Sample the demand for GPUs, learn its hours and weekdays, and keep GPUs free for urgent demand that is expected.

The demand is sampled once a minute, by GPU model, and, where the policy says so, by queue for urgent work. What was
learned is stored in the home folder. Reservations are events like any other, so a journal replays without all this.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Set
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kaiwo.explain import reservation_effect
from kaiwo.forecast.demand_forecast import HOUR_S, DemandForecast, SavedDemand
from kaiwo.forecast.scale_signal import ModelNeed, demand_by_model, scale_signal, urgent_demand
from kaiwo.model.events import Event, ReservationChanged, ReservationGone
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.snapshot.cluster_state import ClusterState

FILE = "demand.msgpack"
SAMPLE_S = 60  # between samples, by the cluster's clock, which may be a fast one
LOOK_S = 1.0  # between looks at that clock
SAVE_S = 600  # between two times that it is stored
MAX_QUEUES = 32  # whose urgent demand is learned: about 0.5 MB each
PREFIX = "predicted-"  # of the reservations' names, before the queue's


class SavedTracker(msgspec.Struct, frozen=True):
    models: dict[str, SavedDemand] = {}
    queues: dict[str, SavedDemand] = {}
    priority: int = 0  # from which demand of queues counted


class DemandTracker:
    """The demand of one cluster, and what follows from it."""

    def __init__(self, live: LiveLoop, home: str) -> None:
        self._live, self._path = live, Path(home) / FILE
        saved = self._load()
        self.models = {model: DemandForecast(each) for model, each in saved.models.items()}
        self.queues = {queue: DemandForecast(each) for queue, each in saved.queues.items()}
        self._priority, self._saved_s, self._sampled_s = saved.priority, 0, 0
        self.needs: tuple[ModelNeed, ...] = ()  # as of the last sample
        self.may_reserve: Callable[[], bool] = lambda: True  # False: a standby
        self._made: set[str] = set()  # reservations; a restart forgets them together with the state

    async def run(self) -> None:
        """Sample until cancelled; then store what was learned."""
        try:
            while True:
                try:
                    if self._live.ready and abs(self._live.cluster.now_s() - self._sampled_s) >= SAMPLE_S:
                        await self.sample()
                except Exception as error:  # scheduling goes on without a forecast: log it and try again
                    emit("demand-tracker-failed", level="error", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(LOOK_S)
        finally:
            self._save()

    async def sample(self) -> None:
        now_s = self._sampled_s = self._live.cluster.now_s()
        events: list[Event] = await self._live.ask(lambda state: list(self._sampled(state, now_s)))
        if events and self.may_reserve():
            self._made.update(each.reservation.name for each in events if isinstance(each, ReservationChanged))
            self._made.difference_update(each.name for each in events if isinstance(each, ReservationGone))
            await self._live.add_events(events)
        if now_s - self._saved_s >= SAVE_S:
            self._saved_s = now_s
            await asyncio.to_thread(self._save)

    async def scale(self) -> tuple[ModelNeed, ...]:
        """As of now."""
        now_s = self._live.cluster.now_s()

        def found(state: ClusterState) -> tuple[ModelNeed, ...]:
            state.refresh_tables()
            return scale_signal(state, self.models, now_s)

        return await self._live.ask(found)

    def _sampled(self, state: ClusterState, now_s: int) -> Iterator[Event]:
        policy = self._live.policy
        state.refresh_tables()
        for model, demand in demand_by_model(state).items():
            self.models.setdefault(model, DemandForecast()).observe(now_s, demand.gpus)
        self.needs = scale_signal(state, self.models, now_s)
        if policy.predicted_ahead_s:
            if self._priority != policy.predicted_priority:  # then it was the demand of other work
                self.queues, self._priority = {}, policy.predicted_priority
            urgent = urgent_demand(state, policy.predicted_priority)
            for queue in [*self.queues, *(name for name in urgent if name not in self.queues)][:MAX_QUEUES]:
                self.queues.setdefault(queue, DemandForecast()).observe(now_s, urgent.get(queue, 0))
            yield from predicted_reservations(state, policy, self.queues, self._made, now_s)

    def _load(self) -> SavedTracker:
        """Nothing, where there is none or another version wrote it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(self._path.read_bytes(), type=SavedTracker)
        return SavedTracker()

    def _save(self) -> None:
        models = {model: each.save() for model, each in self.models.items()}
        queues = {queue: each.save() for queue, each in self.queues.items()}
        temporary = self._path.with_name(f".{FILE}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full disk: it is learned again
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.msgpack.encode(SavedTracker(models, queues, self._priority)))
            os.replace(temporary, self._path)


def predicted_reservations(
    state: ClusterState, policy: Policy, queues: dict[str, DemandForecast], made: Set[str], now_s: int
) -> Iterator[Event]:
    """Keep free GPUs for the urgent demand that each queue is expected to have; give up what is expected no more.

    Only GPUs that are free now are kept: nothing is stopped for work that may never come. `made` are the names of those
    that exist; a person's reservation of such a name stays as it is.
    """
    ahead_h = -(-policy.predicted_ahead_s // HOUR_S)
    left = int(state.nodes.gpu_total.sum()) * policy.predicted_permille // 1000 // WHOLE_MILLI
    urgent, known = urgent_demand(state, policy.predicted_priority), state.reservations.objects
    for queue in sorted(queues):
        name = PREFIX + queue
        before = known.get(name)
        if queue not in state.queue_objects or (before is not None and name not in made):
            continue
        expected = max((queues[queue].expect(ahead) or 0 for ahead in range(1, ahead_h + 2)), default=0)
        missing = min(left, expected - urgent.get(queue, 0))
        end_s = (now_s // HOUR_S + ahead_h + 1) * HOUR_S
        wanted = Reservation(name, missing, owner=ReservationOwner(queue=queue), end_s=end_s, created_s=now_s)
        if missing > 0 and (found := _harmless(state, wanted, before, policy, now_s)) is not None:
            left -= found.gpus
            if before is None or (before.gpus, before.end_s) != (found.gpus, found.end_s):
                yield ReservationChanged(found)
        elif before is not None:
            yield ReservationGone(name)


def _harmless(
    state: ClusterState, wanted: Reservation, before: Reservation | None, policy: Policy, now_s: int
) -> Reservation | None:
    """With as many GPUs as stop nobody; None: there are none."""
    picked = before.picked[: wanted.gpus] if before is not None else ()
    while wanted.gpus:
        tried = replace(wanted, picked=picked[: wanted.gpus], created_s=before.created_s if before else now_s)
        if reservation_effect(state, tried, policy, now_s).is_harmless:
            return tried
        wanted = replace(wanted, gpus=wanted.gpus // 2)
    return None
