"""The words of rules between pods."""

import msgspec
import pytest

from kaiwo.model.affinity import (
    NodeAlternatives,
    NodeRule,
    PodAffinity,
    RequiredPodAffinity,
    RequiredPodAntiAffinity,
    TopologySpread,
    affinity_of_nomination,
    matches_node_rules,
)
from kaiwo.model.events import Event, NominationChanged, PodChanged, WorkloadChanged
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload

RULE = NodeRule("disk", "In", ("ssd",))
ALL = PodAffinity(
    ("m", "n"), RequiredPodAffinity("m", ("zone", "rack")),
    (RequiredPodAntiAffinity("n"), RequiredPodAntiAffinity("o", "rack")), (TopologySpread("m", "zone", 2, 3),), (RULE,),
    (((RULE,), (RULE, NodeRule("x", "Exists"))),),
)  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        PodChanged(Pod("w", "main-0", "node", neighbours=ALL)),
        WorkloadChanged(Workload("w", (Role(Request(neighbours=ALL, node_choices=ALL.own_choices)),))),
        NominationChanged(Nomination("w", "main-0", "node", neighbours=affinity_of_nomination(ALL))),
    ],
)
def test_events_with_neighbours_are_read_as_they_were_written(event: Event) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


def test_kept_space_keeps_others_away_and_is_near_to_nobody() -> None:
    assert affinity_of_nomination(ALL) == PodAffinity(("kept:m", "kept:n"), apart=ALL.apart)
    assert affinity_of_nomination(None) is None


def test_which_marks_open_places_and_on_which_levels_equals_stay_apart() -> None:
    assert ALL.awaited_marks == ("m", "m")
    assert ALL.self_exclusion_levels == ("",)


@pytest.mark.parametrize(("choices", "holds"), [((), True), (((),), False), ((((RULE,),),), True), ((((), ()),), True)])
def test_of_no_alternatives_none_holds(choices: tuple[NodeAlternatives, ...], holds: bool) -> None:
    assert matches_node_rules({"disk": "ssd"}, (), choices) is holds
