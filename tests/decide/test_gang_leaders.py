"""Leaders start before other pods, and are the last surplus to stop."""

from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup
from tests.worlds import World

HEAD = Role(Request(cpu_milli=1000), "head", leads=True)
WORKERS = Role(Request(gpus=2), "workers", 3)


def started(plan: Plan) -> list[str]:
    return [start.pod for start in plan.starts]


def test_the_leader_starts_first_in_the_plan_however_small_it_is() -> None:
    world = World().submit("ray", roles=(WORKERS, HEAD))
    assert started(world.decide()) == ["head-0", "workers-0", "workers-1", "workers-2"]


def test_without_a_leader_large_pods_come_first() -> None:
    world = World().submit("ray", roles=(WORKERS, Role(Request(cpu_milli=1000), "head")))
    assert started(world.decide())[-1] == "head-0"


def test_it_starts_first_where_the_start_was_planned_too() -> None:
    world = World(nodes=1).running("old", gpus=8, estimate_s=600)
    lead = Role(Request(gpus=1), "z-lead", leads=True)
    world.submit("gang", roles=(Role(Request(gpus=2), "a-work", 3), lead), estimate_s=60)
    world.decide()
    assert world.state.planned_starts["default/gang"].start_s == 600
    world.now_s = 600
    plan = world.finish("old").decide()
    assert started(plan) == ["z-lead-0", "a-work-0", "a-work-1", "a-work-2"]


def test_it_is_the_last_that_can_be_spared() -> None:
    """A gang of which any one pod is enough."""
    policy = Policy(actions=("allocate", "preempt"))
    roles = (
        Role(Request(gpus=1), "lead", 2, minimum=0, leads=True),
        Role(Request(gpus=1), "work", 5, minimum=0),
        Role(Request(gpus=1), "base", 1),
    )
    world = World(policy=policy).submit("elastic", roles=roles)
    world.settle()
    gone = []
    for number in range(7):
        world.submit(f"urgent-{number}", gpus_each=1, priority=10)
        gone += [each.pod for each in world.decide().evictions]
        world.let_go().settle()
    assert gone == ["work-4", "work-3", "work-2", "work-1", "work-0", "lead-1", "lead-0"]


def test_of_sub_groups_the_one_that_leads_stays() -> None:
    policy = Policy(actions=("allocate", "preempt"))
    roles = tuple(Role(Request(gpus=2), f"r{number}", 2, leads=number == 1) for number in range(2))
    world = World(policy=policy).submit("serve", roles=roles, groups=(SubGroup(minimum=1),))
    world.settle()
    world.submit("urgent", gpus_each=1, priority=10)
    assert {each.pod for each in world.decide().evictions} == {"r0-0", "r0-1"}
