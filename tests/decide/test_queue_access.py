"""A queue that lists namespaces or users takes the work of nobody else, whoever let it into the cluster."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.explain import obstacles_of
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.events import QueueChanged, QueueGone, WorkloadChanged
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.queue import Queue, queue_that_refuses
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World


def bring(world: World, name: str, queue: str = "lab", user: str = "") -> World:
    return world.tell(WorkloadChanged(Workload(name, (Role(Request(gpus=1)),), queue, user)))


def obstacle(world: World, name: str) -> Obstacle:
    (found,) = obstacles_of(world.state, name, world.policy, world.now_s)
    return found


def test_work_of_another_user_and_of_an_unknown_one_waits_and_is_told_why() -> None:
    world = World().queue("lab", users=("ada", "bob"))
    bring(world, "default/hers", user="ada")
    bring(world, "default/mine", user="eve")
    bring(world, "default/nobodys")
    world.settle()
    assert set(world.state.pods) == {"default/hers"}
    found = obstacle(world, "default/mine")
    assert found.reason is Reason.QUEUE_ACCESS
    assert sentence(found) == "queue 'lab' takes work of the users ada, bob only, and it is of the user eve"
    assert sentence(obstacle(world, "default/nobodys")).endswith("and its user is unknown")


def test_work_of_another_namespace_waits_and_a_parent_holds_for_all_below_it() -> None:
    world = World().queue("lab", namespaces=("robots",)).queue("vision", parent="lab")
    bring(world, "robots/a", "vision", "ada")
    bring(world, "webshop/b", "vision", "ada")
    world.settle()
    assert set(world.state.pods) == {"robots/a"}
    said = sentence(obstacle(world, "webshop/b"))
    assert said == "queue 'lab' takes work of the namespace robots only, and it is of the namespace webshop"


def test_waiting_work_follows_the_list_and_running_work_stays() -> None:
    world = World(gpus_per_node=1).queue("lab", users=("ada",))
    bring(world, "default/hers", user="ada")
    bring(world, "default/mine", user="eve")
    world.settle()
    world.queue("lab", users=("eve",)).settle()
    assert set(world.state.pods) == {"default/hers"}
    assert obstacle(world, "default/mine").reason is not Reason.QUEUE_ACCESS
    world.node("more", gpus=1).settle()
    assert set(world.state.pods) == {"default/hers", "default/mine"}


def test_work_that_may_not_enter_is_no_demand_of_its_queue() -> None:
    world = World().queue("lab", users=("ada",), quota_milli=8_000)
    bring(world, "default/mine", user="eve")
    world.settle()
    assert world.state.backlog.all_demand.get("lab") is None


NAMES = ("a", "b", "c")
QUEUES = st.lists(
    st.builds(
        Queue,
        st.sampled_from(("q", "r", "s")),
        st.sampled_from(("", "q", "r")),
        users=st.sampled_from(((), ("a",), ("a", "b"))),
        namespaces=st.sampled_from(((), ("a",), ("b", "c"))),
    ),
    max_size=6,
)


@given(QUEUES, st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(("", *NAMES))), max_size=6), st.booleans())
def test_nothing_starts_in_a_queue_that_does_not_take_it(queues: list[Queue], work: list[Any], is_gone: bool) -> None:
    world = World()
    for number, (namespace, user) in enumerate(work):
        bring(world, f"{namespace}/w{number}", ("q", "r", "s")[number % 3], user)
    for queue in queues:
        world.tell(QueueChanged(queue))
    if is_gone:
        world.tell(QueueGone("q"))
    before = dict(world.state.workloads)
    world.settle()
    for name in world.state.pods:
        assert queue_that_refuses(world.state.queue_objects, before[name]) is None
    for name, found in before.items():
        refused = queue_that_refuses(world.state.queue_objects, found) is not None
        reasons = {each.reason for each in world.state.backlog.gated.get(name, ())}
        assert (Reason.QUEUE_ACCESS in reasons) == refused
