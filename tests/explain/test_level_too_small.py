"""Where no domain of a required level is large enough, `why` does not say that work should wait."""

from kaiwo import explain
from kaiwo.explain.possible_changes import ChangeKind
from kaiwo.model.obstacle import LevelShort
from tests.decide.levels.fabrics import busy, fabric, nodes_of
from tests.decide.recovery.failures import fail, recover
from tests.worlds import World


def explained(world: World, name: str) -> explain.Why:
    found = explain.why(world.state, f"default/{name}", world.policy, world.now_s)
    assert found is not None
    return found


def test_a_leaf_that_is_too_small_even_when_empty() -> None:
    world = fabric(4, 4)
    world.submit("gang", pods=6, gpus_each=8, required_level="leaf").settle()
    found = explained(world, "gang")
    [obstacle] = found.obstacles
    assert obstacle.sentence == "its 6 pods must run in one leaf, but even an empty leaf has room for only 4"
    assert "wait" not in obstacle.remedy
    assert found.change is not None
    assert found.change.kind is ChangeKind.LOOSER_LEVEL
    assert "required-level=spine" in found.change.command


def test_the_looser_level_is_named_even_while_the_cluster_is_busy() -> None:
    world = fabric(4, 4)
    for leaf in range(2):
        for node in range(4):
            busy(world, f"l{leaf}-n{node}", gpus=1)
    world.submit("gang", pods=6, gpus_each=8, required_level="leaf").settle()
    obstacle = explained(world, "gang").obstacles[0]
    assert isinstance(obstacle.obstacle.facts, LevelShort)
    assert obstacle.obstacle.facts.is_too_small
    assert "require a wider level" in obstacle.remedy


def test_a_leaf_that_is_only_busy_is_worth_waiting_for() -> None:
    world = fabric(4, 4)
    busy(world, "l0-n0")
    busy(world, "l1-n0")
    world.submit("gang", pods=4, gpus_each=8, required_level="leaf").settle()
    obstacle = explained(world, "gang").obstacles[0]
    assert obstacle.sentence == "its 4 pods must run in one leaf; leaf-0 comes closest, with room for 3"
    assert "wait for work there to end" in obstacle.remedy


def test_a_gang_that_lost_a_pod_says_where_it_must_return() -> None:
    world = fabric(3, 1)
    world.submit("gang", pods=2, gpus_each=8, required_level="leaf").settle()
    busy(world, "l0-n2")
    recover(fail(world, nodes_of(world, "gang")["main-0"]))
    sentence = explained(world, "gang").obstacles[0].sentence
    assert sentence == "its 1 pod must run in the same leaf; leaf-0, where its other pods run, has room for 0"
