"""What a plugin of others said in one cycle is not used in the next: a replay that begins later does not know it."""

import pytest

from kaiwo.decide import decide
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from tests.plugins.conftest import Started
from tests.plugins.strangers import well_behaved
from tests.worlds import World

CHANGING = ("ByTheHour", "ByTheQueues", "OpenByTheHour", "SilentByTheHour")


def registry(plugin: object) -> Registry:
    found = builtin_registry()
    found.add(plugin)  # type: ignore[arg-type]
    return found


def places(plugins: Registry, forgets: bool) -> list[str]:
    """Where equal work starts that comes every 100 s; `forgets`: as in a replay that begins before each cycle."""
    world, found = World(nodes=6, plugins=plugins), []
    for number in range(4):
        world.now_s += 100
        world.submit(f"w{number}", gpus_each=1, submitted_s=world.now_s)
        if forgets:
            world.state.caches.clear()
        plan = decide(world.snapshot(), plugins=plugins)
        assert plan.notes == ()
        found += [start.node for start in plan.starts]
        world.after(plan)
    return found


@pytest.mark.parametrize("name", CHANGING)
def test_a_plan_does_not_depend_on_what_earlier_cycles_were_told(name: str) -> None:
    known, forgotten = (places(registry(getattr(well_behaved, name)()), forgets) for forgets in (False, True))
    assert known == forgotten
    assert len(known) == 4
    assert len(set(known)) >= (2 if name == "SilentByTheHour" else 4), "its answers changed from cycle to cycle"


@pytest.mark.parametrize("name", CHANGING)
def test_it_is_the_same_in_a_worker(name: str, confined: Started) -> None:
    inside = places(registry(getattr(well_behaved, name)()), forgets=False)
    assert places(registry(confined(name)), forgets=False) == inside


class AskedOften:
    """Counts for how many nodes it is asked."""

    name, version, weight, asked = "asked-often", "1", 1, 0
    __module__ = "kaiwo.plugins.builtin.of_a_test"

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        self.asked += len(nodes)
        return nodes * 0


def test_kaiwos_own_are_asked_about_changed_nodes_only() -> None:
    own = AskedOften()
    places(registry(own), forgets=False)
    assert own.asked < 6 * 4
