"""Who may share a GPU with whom: rules of workloads, queues, nodes and the policy add up, in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.explain import why
from kaiwo.model.events import SharingRulesInUse, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import EQUALITIES, GpuTenant, joined_rules, may_share, parse_share_rule, rule_of_node
from kaiwo.model.obstacle import Reason
from kaiwo.model.queue import queue_path
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

HALF = Request(gpus=1, gpu_milli=400)


def share(*rule: str, milli: int = 400) -> Request:
    return Request(gpus=1, gpu_milli=milli, share_with=rule)


def two_gpus(**labels: str) -> World:
    return World(nodes=0).node("a", gpus=2, labels=labels).queue("lab").queue("ops")


def are_together(world: World, *names: str) -> bool:
    assert all(world.is_running(name) for name in names)
    return len({tuple(world.devices_of(name)) for name in names}) == 1


@pytest.mark.parametrize(
    ("text", "rule"),
    [("anyone", ()), ("nobody", ("nobody",)), ("user", ("user",)), ("user, queue", ("queue", "user")),
     ("queue.user", ("queue", "user")), ("user,nobody", None), ("", None), ("team", None), ("User", None)],
)  # fmt: skip
def test_a_rule_is_written_as_words(text: str, rule: tuple[str, ...] | None) -> None:
    assert parse_share_rule(text) == rule


def test_a_mistyped_label_of_a_node_counts_as_the_strictest_rule() -> None:
    assert rule_of_node({"kaiwo.ai/gpu-share-with": "usr"}) == ("nobody",)


@pytest.mark.parametrize("is_first", [True, False], ids=["it comes first", "it comes second"])
@pytest.mark.parametrize(
    ("rule", "other", "together"),
    [
        (("queue",), {"queue": "lab", "user": "bob"}, True),
        (("queue",), {"queue": "ops", "user": "ada"}, False),
        (("user",), {"queue": "ops", "user": "ada"}, True),
        (("user",), {"queue": "lab", "user": ""}, False),
        (("queue", "user"), {"queue": "lab", "user": "bob"}, False),
        (("namespace",), {"queue": "ops", "user": "bob"}, True),
        (("nobody",), {"queue": "lab", "user": "ada"}, False),
        ((), {"queue": "ops", "user": "bob"}, True),
    ],
)
def test_a_rule_of_one_holds_for_both(
    rule: tuple[str, ...], other: dict[str, str], together: bool, is_first: bool
) -> None:
    world = two_gpus()
    wants = [("strict", share(*rule), {"queue": "lab", "user": "ada"}), ("other", HALF, other)]
    for name, request, changes in wants if is_first else reversed(wants):
        world.submit(name, request=request, **changes).settle()
    assert are_together(world, "strict", "other") is together


def test_an_unknown_user_is_equal_to_nobody_even_to_himself() -> None:
    world = two_gpus().submit("one", pods=2, request=share("user")).submit("third", request=share("user"))
    world.settle()
    assert len(set(world.devices_of("one"))) == 2
    assert not world.is_running("third")


def test_pods_of_one_workload_that_shares_with_nobody_have_a_gpu_each() -> None:
    world = two_gpus().submit("many", pods=3, minimum=1, request=share("nobody", milli=100))
    world.settle()
    assert world.devices_of("many") == ["a/gpu-0", "a/gpu-1"]


def test_a_whole_gpu_shares_with_nobody_whatever_the_rule() -> None:
    world = two_gpus().submit("strict", request=share("nobody")).submit("whole", gpus_each=1)
    world.settle()
    assert not are_together(world, "strict", "whole")


def test_the_rules_of_a_queue_hold_for_the_queues_below_it() -> None:
    world = two_gpus().queue("dept", share_with=("user",)).queue("team", "dept")
    world.submit("one", request=HALF, queue="team", user="ada").settle()
    world.submit("two", request=HALF, queue="ops", user="bob").settle()
    world.submit("three", request=HALF, queue="lab", user="ada").settle()
    assert not are_together(world, "one", "two")
    assert are_together(world, "one", "three")


def test_a_queue_that_gets_a_rule_keeps_running_work_and_lets_nobody_else_join() -> None:
    world = World(nodes=0).node("a", gpus=1).queue("lab").queue("ops")
    for queue in ("lab", "ops"):
        world.submit(queue, request=share(milli=300), queue=queue).settle()
    world.queue("lab", share_with=("queue",)).submit("late", request=share(milli=300), queue="ops").settle()
    assert world.is_running("lab")
    assert world.is_running("ops")
    assert world.why("late") == [Reason.MAY_NOT_SHARE]
    world.queue("lab").settle()
    assert world.is_running("late")


def test_the_label_of_a_node_holds_there_alone() -> None:
    world = two_gpus(**{"kaiwo.ai/gpu-share-with": "queue"}).node("b", gpus=1, cordoned=True)
    world.submit("one", request=HALF, queue="lab").submit("two", request=HALF, queue="ops").settle()
    assert not are_together(world, "one", "two")
    world.submit("three", request=Request(gpus=1, gpu_milli=700), queue="lab").settle()
    assert Reason.NOT_ENOUGH_FREE_GPU_SHARE in world.why("three")
    world.node("b", gpus=1).settle()
    world.submit("four", request=share(milli=300), queue="ops").settle()
    assert world.is_running("three")
    assert world.is_running("four")


def test_the_rule_of_the_policy_holds_everywhere() -> None:
    world = two_gpus().tell(SharingRulesInUse(("user",)))
    world.submit("one", request=HALF, user="ada").submit("two", request=HALF, user="bob").settle()
    assert not are_together(world, "one", "two")


def test_work_that_leaves_is_still_a_tenant_of_its_gpu() -> None:
    world = World(nodes=0).node("a", gpus=1).submit("strict", request=share("nobody"))
    world.settle()
    (pod,) = world.state.pods["default/strict"].values()
    world.tell(WorkloadGone("default/strict")).submit("other", request=HALF)
    assert world.decide().starts == ()
    assert isinstance(pod, Pod)
    world.finish("strict").settle()
    assert world.is_running("other")


def test_urgent_work_that_shares_with_nobody_stops_all_tenants_of_one_gpu_and_no_more() -> None:
    world = two_gpus().submit("a", request=HALF).submit("b", request=HALF).submit("c", gpus_each=1, priority=50)
    world.settle()
    assert are_together(world, "a", "b")
    world.submit("urgent", request=share("nobody"), priority=50).settle()
    assert world.is_running("urgent")
    assert world.is_running("c")
    assert not world.is_running("a")
    assert not world.is_running("b")


def test_a_victim_does_not_return_beside_urgent_work_that_excludes_it() -> None:
    world = World(nodes=0).node("a", gpus=1).submit("low", request=share(milli=500), user="bob")
    world.settle()
    world.submit("urgent", request=share("user", milli=300), user="ada", priority=50)
    (eviction,) = world.decide().evictions
    assert eviction.workload == "default/low"
    world.submit("late", request=share(milli=100), user="bob")
    assert world.decide().starts == ()  # what is kept for the urgent work is not spoiled meanwhile
    world.let_go().settle()
    assert world.is_running("urgent")
    assert not world.is_running("low")


def test_why_says_it_in_plain_words_and_what_would_start_it() -> None:
    world = World(nodes=0).node("a", gpus=1).queue("lab").queue("ops")
    world.submit("first", request=HALF, queue="lab", user="ada").settle()
    world.submit("strict", request=share("queue", "user"), queue="ops", user="bob").settle()
    answer = why(world.state, "default/strict", world.policy, world.now_s)
    assert world.why("strict") == [Reason.MAY_NOT_SHARE]
    assert answer.answer.endswith(
        "GPUs with enough free share are used by others with whom it may not share, of queue lab: "
        "it asked to share a GPU with work of the same queue and user only"
    )
    assert answer.change is not None
    assert answer.change.sentence == "let anyone share its GPU"
    assert "--share-with anyone" in answer.change.command


def test_why_never_advises_a_way_around_the_rule_of_a_queue() -> None:
    world = World(nodes=0).node("a", gpus=1).queue("lab").queue("ops", share_with=("nobody",))
    world.submit("first", request=HALF, queue="lab", user="ada").settle()
    world.submit("second", request=HALF, queue="ops", user="bob").settle()
    answer = why(world.state, "default/second", world.policy, world.now_s)
    assert "by a rule of its queue or of the policy, it shares a GPU with nobody" in answer.answer
    assert answer.change is None or answer.change.kind == "stop-workload"


def test_the_queue_and_the_user_of_running_work_may_change() -> None:
    world = two_gpus().submit("one", request=share("queue"), queue="lab")
    world.settle()
    moved = replace(world.state.workloads["default/one"], queue="ops")
    world.tell(WorkloadChanged(moved)).submit("two", request=HALF, queue="ops").settle()
    assert are_together(world, "one", "two")
    assert_counts_are_right(world)


def test_a_trial_that_is_undone_leaves_no_trace() -> None:
    world = World(nodes=0).node("a", gpus=1).submit("strict", request=share("nobody"))
    world.settle()
    working = WorkingCopy(world.snapshot())
    (pod,) = world.state.pods["default/strict"].values()
    tenants = working.view.tenants
    assert tenants.closed_to is not None
    rows = working.view.changed.argsort()
    with working.trial():
        working.release_uncharged(pod)
        assert not tenants.closed_to(GpuTenant(), (), rows).any()
    assert tenants.closed_to(GpuTenant(), (), rows).all()


def test_a_state_made_of_its_own_events_is_the_same() -> None:
    """A rule that was in use once stays in use: the journal's base has it."""
    world = two_gpus().submit("strict", request=share("user"), user="ada")
    world.settle()
    world.finish("strict").submit("waits", request=Request(gpus=1, gpu_milli=700), pods=3, user="bob").settle()
    again = ClusterState()
    again.patch(world.state.events())
    assert again.sharing.in_use == world.state.sharing.in_use == ("user",)
    assert set(again.backlog.by_key) == set(world.state.backlog.by_key)


def test_without_rules_nothing_is_counted() -> None:
    world = two_gpus().submit("one", request=HALF, user="ada").submit("two", request=HALF, user="bob")
    world.settle()
    assert world.state.nodes.tenants.shared is None
    assert are_together(world, "one", "two")


RULES = st.sampled_from([(), (), ("queue",), ("user",), ("namespace", "user"), ("nobody",)])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "finish", "let go"]),
        RULES,
        st.sampled_from([200, 500, 900, 1000]),
        st.sampled_from(["lab", "ops"]),
        st.sampled_from(["", "ada", "bob"]),
        st.sampled_from(["default", "team"]),
        st.sampled_from([0, 0, 50]),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=25,
)


@given(STEPS, RULES, RULES)
def test_whatever_comes_and_goes_the_rules_hold_and_no_allowed_gpu_stays_unused(
    steps: list[tuple[str, tuple[str, ...], int, str, str, str, int, int]],
    of_queue: tuple[str, ...],
    of_node: tuple[str, ...],
) -> None:
    labels = {"kaiwo.ai/gpu-share-with": ".".join(of_node) or "anyone"}
    world = World(nodes=0).node("a", gpus=2, labels=labels).node("b", gpus=1)
    world.queue("lab", share_with=of_queue).queue("ops")
    for number, (act, rule, milli, queue, user, namespace, priority, pods) in enumerate(steps):
        running = sorted(world.state.pods)
        if act == "submit":
            request = Request(gpus=1, gpu_milli=milli, share_with=rule if milli < 1000 else ())
            world.submit(f"{namespace}/w{number}", pods, request=request, queue=queue, user=user, priority=priority)
        elif act == "finish" and running:
            world.finish(running[number % len(running)])
        elif act == "let go":
            world.let_go()
        world.decide()
        assert_rules_hold(world)
        assert_counts_are_right(world)
    world.settle()
    assert_rules_hold(world)
    assert world.is_within_capacity()
    assert_no_allowed_gpu_is_refused(world)


def tenant(state: ClusterState, workload: Workload) -> GpuTenant:
    """From first principles, with everything that there is to know."""
    rules = [role.request.share_with for role in workload.roles]
    rules += [queue.share_with for queue in queue_path(state.queue_objects, workload.queue)]
    return GpuTenant(joined_rules(rules), workload.queue, workload.name.partition("/")[0], workload.user)


def tenants_by_gpu(state: ClusterState) -> dict[tuple[str, str], list[GpuTenant]]:
    found: dict[tuple[str, str], list[GpuTenant]] = {}
    held = [pod for pods in state.pods.values() for pod in pods.values()]
    for each in (*held, *(kept for places in state.nominations.values() for kept in places.values())):
        for share in each.devices:
            found.setdefault((each.node, share.gpu), []).append(tenant(state, state.workloads[each.workload]))
    return found


def assert_rules_hold(world: World) -> None:
    state = world.state
    leaving = {(pod.node, share.gpu) for p in state.pods.values() for pod in p.values() for share in pod.devices
               if pod.phase == "releasing"}  # fmt: skip
    for (node, gpu), tenants in tenants_by_gpu(state).items():
        if (node, gpu) in leaving:
            continue  # what is kept there for others starts when it is gone
        rule = rule_of_node(state.node_objects[node].labels)
        assert all(may_share(one, other, rule) for at, one in enumerate(tenants) for other in tenants[at + 1 :]), (
            f"{node}/{gpu}: {tenants}"
        )


def assert_counts_are_right(world: World) -> None:
    """What was patched event by event is what a table that is built anew says."""
    state = world.state
    state.refresh_tables()
    again = ClusterState()
    again.patch(state.events())
    again.refresh_tables()
    kept, fresh = state.nodes.tenants.shared, again.nodes.tenants.shared
    assert (kept is None) == (fresh is None)
    if kept is None or fresh is None:
        return
    for row, node in enumerate(state.nodes.nodes):
        for column in range(len(node.gpus)):
            assert kept.tenants_on(row, column) == fresh.tenants_on(row, column)


def assert_no_allowed_gpu_is_refused(world: World) -> None:
    """The exhaustive search: for every waiting workload of one pod, each GPU in turn."""
    state, there = world.state, tenants_by_gpu(world.state)
    if state.nominations or state.releasing:
        return
    for workload in state.workloads.values():
        if workload.name in state.pods or workload.pods > 1:
            continue
        want, mine = workload.roles[0].request, tenant(state, workload)
        for node in state.node_objects.values():
            for gpu in node.gpus:
                held = [s for p in state.pods.values() for pod in p.values() if pod.node == node.name
                        for s in pod.devices if s.gpu == gpu.id]  # fmt: skip
                fits = sum(s.milli for s in held) + want.gpu_milli <= 1000
                others = there.get((node.name, gpu.id), [])
                allowed = all(may_share(mine, each, rule_of_node(node.labels)) for each in others)
                assert not (fits and allowed), f"{workload.name} could start on {node.name}/{gpu.id}"


def test_every_equality_is_a_field_of_a_tenant() -> None:
    assert set(EQUALITIES) <= set(GpuTenant.__struct_fields__)
