"""A plugin that writes to what it may only read, or declares nonsense, harms only itself."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kaiwo.decide import decide
from kaiwo.explain import why
from kaiwo.gpus.device_fit import pods_per_device
from kaiwo.model.errors import PluginError
from kaiwo.model.events import ReservationChanged
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.view import View
from tests.worlds import World

Deed = Callable[[Any, Request, Rows], Any]


class Meddler:
    """Does something to what it was handed, and answers as if nothing had happened."""

    name, version, reason, is_static, weight = "meddler", "1", Reason.PLUGIN, False, 1

    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        self.deed(view, want, nodes)
        return np.ones(len(nodes), np.bool_)


class MeddlingScore:
    name, version, weight = "meddler", "1", 1

    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        self.deed(view, want, nodes)
        return np.zeros(len(nodes), np.int64)


def fill(array: np.ndarray[Any, Any]) -> None:
    array[...] = 10**6


DEEDS: dict[str, Deed] = {
    "its rows": lambda view, want, nodes: nodes.fill(0),
    "the order of its rows": lambda view, want, nodes: nodes.sort(),
    "what is gathered": lambda view, want, nodes: fill(view.of(nodes).free),
    "the gathered devices": lambda view, want, nodes: fill(view.of(nodes).gpus),
    "what is free": lambda view, want, nodes: fill(view.free),
    "the devices": lambda view, want, nodes: fill(view.gpus),
    "what changed": lambda view, want, nodes: fill(view.changed),
    "what queues use": lambda view, want, nodes: fill(view.all_used),
    "what queues use for good": lambda view, want, nodes: fill(view.queue_non_preemptible),
    "the nodes": lambda view, want, nodes: fill(view.nodes.free),
    "the sizes of nodes": lambda view, want, nodes: fill(view.nodes.cpu_size),
    "the queues": lambda view, want, nodes: fill(view.queues.used),
    "the quotas": lambda view, want, nodes: fill(view.queues.quota),
    "what is reserved": lambda view, want, nodes: fill(view.reservations.closed(want.passes, 0)),
    "an attribute": lambda view, want, nodes: setattr(view, "free", view.free * 0),
    "the clock": lambda view, want, nodes: setattr(view, "clock", 0),
    "what fits": lambda view, want, nodes: fill(pods_per_device(view, want, nodes)),
    "the names of nodes": lambda view, want, nodes: operator.setitem(view.nodes.names, 0, "other"),
    "the rows of nodes": lambda view, want, nodes: operator.setitem(view.nodes.row, "other", 0),
    "the definition of a node": lambda view, want, nodes: operator.setitem(view.nodes.nodes, 0, Node("other")),
    "the columns of devices": lambda view, want, nodes: view.nodes.column[0].clear(),
    "the models": lambda view, want, nodes: view.nodes.models.append("other"),
    "the vendors": lambda view, want, nodes: operator.setitem(view.nodes.vendors, "MI300X", "nvidia"),
    "a table": lambda view, want, nodes: setattr(view.nodes, "names", ()),
    "a part of a table": lambda view, want, nodes: delattr(view.queues, "row"),
    "a row": lambda view, want, nodes: view.nodes.write_node(Node("other"), (), 0),
    "a charge": lambda view, want, nodes: view.queues.add("lab", (1_000, 0, 0), 1),
    "the rows of queues": lambda view, want, nodes: operator.setitem(view.queues.row, "other", 0),
    "the bounds": lambda view, want, nodes: operator.setitem(view.queues.is_bounded, 0, False),
    "the tree": lambda view, want, nodes: fill(view.queues.tree.parent),
    "the demand": lambda view, want, nodes: operator.setitem(view.queue_demand, "lab", (0, 0, 0, 0)),
}
REFUSALS = ("read-only", "does not support item assignment", "has no attribute")


def registry(*plugins: object) -> Registry:
    found = builtin_registry()
    for plugin in plugins:
        found.add(plugin)  # type: ignore[arg-type]
    return found


def crowd() -> World:
    world = World(nodes=3).queue("lab", gpu_limit=2_000)
    world.tell(ReservationChanged(Reservation("pool", gpus=1)))
    world.submit("a", gpus_each=3).submit("b", fraction_milli=500).submit("c", cpu_milli=2_000, queue="lab")
    return world.submit("d", memory_mib=30_000).submit("huge", gpus_each=9)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
@pytest.mark.parametrize("plugin", [Meddler, MeddlingScore])
def test_who_writes_to_what_it_was_handed_is_set_aside_and_changes_nothing(plugin: Any, deed: Deed) -> None:
    plan = decide(crowd().snapshot(), plugins=registry(plugin(deed)))
    assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", "meddler")]
    assert any(words in plan.notes[0].detail for words in REFUSALS)
    assert plan.starts == decide(crowd().snapshot()).starts


def test_a_plugin_sees_no_way_to_place_or_undo() -> None:
    seen: list[View] = []
    decide(crowd().snapshot(), plugins=registry(Meddler(lambda view, want, nodes: seen.append(view))))
    assert seen
    for name in ("take", "charge", "release", "rollback", "trial", "as_of", "use_reservations"):
        assert not hasattr(seen[0], name)
    with pytest.raises(TypeError):
        seen[0].tenants.small[0, 0, 0] = 1  # type: ignore[index]


@pytest.mark.timeout(600)
def test_why_answers_beside_a_plugin_that_writes_to_its_rows() -> None:
    plugins = registry(Meddler(DEEDS["its rows"]))
    world = crowd()
    world.settle()
    answer = why(world.state, "default/huge", DEFAULT_POLICY, world.now_s, plugins)
    assert answer == why(world.state, "default/huge", DEFAULT_POLICY, world.now_s)


class Exits:
    """Wants to end the program."""

    name, version, reason, is_static = "exits", "1", Reason.PLUGIN, True

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        raise self.error

    def workload_order(self, workload: object, policy: Policy) -> tuple[int, ...]:
        raise self.error


class Own(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("error", [SystemExit(3), Own("mine"), GeneratorExit()])
def test_a_plugin_cannot_end_the_program(error: BaseException) -> None:
    plugins = registry(Exits(error))
    world = World(plugins=plugins).submit("one", gpus_each=1)
    plan = decide(world.snapshot(), plugins=plugins)
    assert [(note.code, note.subject) for note in plan.notes] == [
        ("plugin-misbehaved", "exits"),
        ("plugin-set-aside", "exits"),
    ]
    assert type(error).__name__ in plan.notes[1].detail
    assert [start.workload for start in plan.starts] == ["default/one"]


def test_a_person_can_always_end_the_program() -> None:
    plugins = registry(Exits(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        decide(World().submit("one", gpus_each=1).snapshot(), plugins=plugins)
    with pytest.raises(KeyboardInterrupt):
        World(plugins=plugins).submit("one", gpus_each=1)


@pytest.mark.timeout(600)
def test_a_plugin_that_cannot_be_set_aside_ends_the_cycle_with_a_sentence() -> None:
    class NeverFits:
        name, version = "never-fits", "1"

        def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
            raise RuntimeError("no")

    plugins = Registry([NeverFits()])  # and nothing replaces it
    with pytest.raises(PluginError, match="'never-fits' misbehaves and nothing replaces it"):
        decide(World().submit("one", gpus_each=1).snapshot(), Policy(gpu_strategy="never-fits"), plugins)


class Score:
    name, version, weight = "s", "1", 1

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return np.zeros(len(nodes), np.int64)


class Narrow:
    """Its scores are right, in integers that their weighted sum does not fit into."""

    name, version, weight = "narrow", "1", 5_000

    def __init__(self, dtype: type) -> None:
        self.dtype = dtype

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        best = [100 * (view.nodes.names[row] == "node-1") for row in nodes]
        return np.array(best).astype(self.dtype)

    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return (100 * (columns == 3)).astype(self.dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.bool_])
def test_a_score_may_come_in_narrow_integers(dtype: type) -> None:
    plan = decide(World(nodes=3).submit("a", gpus_each=1).snapshot(), plugins=registry(Narrow(dtype)))
    assert plan.notes == ()
    (start,) = plan.starts
    assert (start.node, [share.gpu for share in start.devices]) == ("node-1", ["gpu-3"])


class Filter:
    name, version, reason, is_static = "f", "1", Reason.PLUGIN, True

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        return np.ones(len(nodes), np.bool_)


REFUSED: list[tuple[type, str, Any, str]] = [
    (Score, "weight", "a", "`weight` of plugin 's' is 'a'; it must be a whole number from 0 to 100,000"),
    (Score, "weight", 1.5, "`weight` of plugin 's' is 1.5; it must be a whole number"),
    (Score, "weight", True, "`weight` of plugin 's' is True; it must be a whole number"),
    (Score, "weight", -1, "`weight` of plugin 's' is -1; it must be a whole number"),
    (Score, "weight", 10**30, "it must be a whole number from 0 to 100,000"),
    (Score, "version", 1, "`version` of plugin 's' is 1; it must be text"),
    (Score, "name", 7, "`name` of plugin '7' is 7; it must be text"),
    (Score, "placement", "tight", "`placement` of plugin 's' is 'tight'; it must be pack or spread"),
    (Score, "applies", True, "`applies` of plugin 's' is True; it must be a method"),
    (Filter, "reason", "full", "`reason` of plugin 'f' is 'full'; it must be one of"),
    (Filter, "is_static", "no", "`is_static` of plugin 'f' is 'no'; it must be True or False"),
    (Filter, "depends_on", ("gpu",), r"`depends_on` of plugin 'f' is \('gpu',\); it must be a tuple of the request"),
    (Filter, "depends_on", "gpus", "it must be a tuple of the request's fields: cpu_milli"),
]


@pytest.mark.parametrize(("kind", "field", "value", "sentence"), REFUSED)
def test_what_a_plugin_says_of_itself_is_looked_at_at_the_door(
    kind: type, field: str, value: Any, sentence: str
) -> None:
    plugin = kind()
    setattr(plugin, field, value)
    plugins = builtin_registry()
    before = plugins.versions
    with pytest.raises(PluginError, match=sentence):
        plugins.add(plugin)
    assert plugins.versions == before
    plugins.add(kind())


def test_a_score_without_a_weight_is_told_so() -> None:
    class Weightless:
        name, version, score = "light", "1", Score.score

    with pytest.raises(PluginError, match="'light' has `score` and no `weight`; give it one"):
        builtin_registry().add(Weightless())
