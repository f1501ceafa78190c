"""What plugins at the edge say about the starts of a plan, between `decide` and the cluster.

In:    a decided plan, already in the state.   Out: the plan without refused starts, and events that take them back.
Never: changes a decision that is journaled. A refused start is an event of its own: the place is free again, and the
workload waits with the plugin's reason.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from kaiwo.model.events import Event, NominationChanged, PodGone, StartRefused
from kaiwo.model.plan import Nomination, Plan
from kaiwo.model.workload import role_of
from kaiwo.plugins.edge_contract import PodPlace, StartPlacement
from kaiwo.snapshot.cluster_state import ClusterState


class PluginRefusal(NamedTuple):
    plugin: str
    why: str
    again_s: int


class GateAnswer(NamedTuple):
    refused: Mapping[str, PluginRefusal] = {}  # by workload
    annotations: Mapping[str, Mapping[str, str]] = {}  # by workload: for its pods


class StartGate(Protocol):
    @property
    def is_open(self) -> bool:
        """Nobody is asked."""

    async def check(self, placements: tuple[StartPlacement, ...], now_s: int) -> GateAnswer: ...

    async def started(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        """These were handed to the cluster."""


class OpenGate:
    """Where there are no such plugins."""

    is_open = True

    async def check(self, placements: tuple[StartPlacement, ...], now_s: int) -> GateAnswer:
        return GateAnswer()

    async def started(self, placements: tuple[StartPlacement, ...], now_s: int) -> None:
        pass


def placements_of(state: ClusterState, plan: Plan) -> tuple[StartPlacement, ...]:
    """One for each workload of which the plan starts pods; in the order of the plan."""
    starts: dict[str, list[PodPlace]] = {}
    extended: dict[str, dict[str, int]] = {}
    for start in plan.starts:
        devices = tuple(share.gpu for share in start.devices)
        starts.setdefault(start.workload, []).append(PodPlace(start.pod, start.node, devices))
        amounts = extended.setdefault(start.workload, {})
        workload = state.workloads.get(start.workload)
        for name, amount in role_of(workload, start.pod).request.extended if workload is not None else ():
            amounts[name] = amounts.get(name, 0) + amount
    domains: dict[str, dict[str, str]] = {}
    for choice in plan.domains:
        if not choice.part and choice.level:
            domains.setdefault(choice.workload, {})[choice.level] = choice.domain
    known = ((name, state.workloads.get(name)) for name in starts)
    return tuple(
        StartPlacement(
            name,
            workload.queue,
            workload.user,
            tuple(starts[name]),
            extended[name],
            domains.get(name, {}),
            dict(workload.labels),
        )
        for name, workload in known
        if workload is not None
    )


def nominations_of_starts(state: ClusterState, plan: Plan) -> tuple[Nomination, ...]:
    """The space that is kept for pods that start now: kept again, if they are refused."""
    kept = (state.nominations.get(start.workload, {}).get(start.pod) for start in plan.starts)
    return tuple(each for each in kept if each is not None)


def checked_plan(plan: Plan, answer: GateAnswer) -> Plan:
    """The plan as the cluster gets it."""
    if not answer.refused and not answer.annotations:
        return plan
    starts = tuple(
        replace(start, annotations=tuple(sorted(answer.annotations[start.workload].items())))
        if answer.annotations.get(start.workload)
        else start
        for start in plan.starts
        if start.workload not in answer.refused
    )
    return replace(plan, starts=starts)


def refusal_events(plan: Plan, answer: GateAnswer, nominations: Sequence[Nomination], now_s: int) -> list[Event]:
    events: list[Event] = [
        PodGone(start.workload, start.pod) for start in plan.starts if start.workload in answer.refused
    ]
    events += [NominationChanged(each) for each in nominations if each.workload in answer.refused]
    for name, refusal in sorted(answer.refused.items()):
        events.append(StartRefused(name, refusal.plugin, refusal.why, now_s + refusal.again_s))
    return events
