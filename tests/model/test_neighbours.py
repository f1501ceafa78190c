"""The words of rules between pods."""

import msgspec
import pytest

from kaiwo.model.affinity import Apart, Choice, Near, NodeRule, PodAffinity, Spread, kept, obeys
from kaiwo.model.events import Event, NominationChanged, PodChanged, WorkloadChanged
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload

RULE = NodeRule("disk", "In", ("ssd",))
ALL = PodAffinity(
    ("m", "n"), Near("m", ("zone", "rack")), (Apart("n"), Apart("o", "rack")), (Spread("m", "zone", 2, 3),), (RULE,),
    (((RULE,), (RULE, NodeRule("x", "Exists"))),),
)  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        PodChanged(Pod("w", "main-0", "node", neighbours=ALL)),
        WorkloadChanged(Workload("w", (Role(Request(neighbours=ALL, node_choices=ALL.own_choices)),))),
        NominationChanged(Nomination("w", "main-0", "node", neighbours=kept(ALL))),
    ],
)
def test_events_with_neighbours_are_read_as_they_were_written(event: Event) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event


def test_kept_space_keeps_others_away_and_is_near_to_nobody() -> None:
    assert kept(ALL) == PodAffinity(("kept:m", "kept:n"), apart=ALL.apart)
    assert kept(None) is None


def test_which_marks_open_places_and_on_which_levels_equals_stay_apart() -> None:
    assert ALL.waits_for == ("m", "m")
    assert ALL.own_levels == ("",)


@pytest.mark.parametrize(("choices", "holds"), [((), True), (((),), False), ((((RULE,),),), True), ((((), ()),), True)])
def test_of_no_alternatives_none_holds(choices: tuple[Choice, ...], holds: bool) -> None:
    assert obeys({"disk": "ssd"}, (), choices) is holds
