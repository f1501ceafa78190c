"""In which order a workload with sub-groups grows, and which ways to start are kept."""

from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload
from kaiwo.snapshot.subgroup_choices import MAX_ALTERNATIVES, choices_of, ways_to_grow, ways_to_start

ONE = Request(gpus=1)


def replicas(group: str, count: int) -> tuple[Role, ...]:
    return tuple(Role(ONE, f"{group}{number}", 1, group=group) for number in range(count))


def test_who_has_least_of_what_it_needs_grows_first() -> None:
    groups = (SubGroup(), SubGroup("a", minimum=2), SubGroup("b", minimum=1))
    workload = Workload("default/w", (*replicas("a", 4), *replicas("b", 3)), groups=groups)
    # a has 3 of the 2 that it needs, b has 2 of 1
    assert ways_to_grow(workload, [1, 1, 1, 0, 1, 1, 0]) == [((3, 1),), ((6, 1),)]
    # a has 4 of 2, b has 1 of 1
    assert ways_to_grow(workload, [1, 1, 1, 1, 1, 0, 0])[0] == ((5, 1),)


def test_roles_grow_by_what_they_have_for_each_pod_that_they_need() -> None:
    roles = (Role(ONE, "x", 6, 2), Role(ONE, "y", 6, 1))
    workload = Workload("default/w", roles, groups=(SubGroup(),))
    assert ways_to_grow(workload, [3, 2]) == [((0, 1),), ((1, 1),)]  # 1.5 and 2 times
    assert ways_to_grow(workload, [5, 2]) == [((1, 1),), ((0, 1),)]  # 2.5 and 2 times
    assert ways_to_grow(workload, [4, 2]) == [((0, 1),), ((1, 1),)]  # equal: the first role first
    assert ways_to_grow(workload, [6, 6]) == []


def test_the_cheapest_ways_are_kept_and_no_more() -> None:
    """Any of so many different roles makes it whole: each is a way of its own."""
    for count in (MAX_ALTERNATIVES - 1, MAX_ALTERNATIVES, MAX_ALTERNATIVES + 1):
        roles = tuple(Role(Request(gpus=1, cpu_milli=1_000 - number), f"r{number}", 1) for number in range(count))
        ways = ways_to_start(Workload("default/w", roles, groups=(SubGroup(minimum=1),)), [0] * count)
        expected = [((number, 1),) for number in reversed(range(count))]
        assert ways == expected[:MAX_ALTERNATIVES]
    assert MAX_ALTERNATIVES == 16, "the docs say so"


def test_gpus_cost_most_then_their_memory_then_processors_then_memory() -> None:
    requests = (
        Request(gpus=1, gpu_milli=500, memory_mib=1),
        Request(memory_mib=2),
        Request(memory_mib=1),
        Request(cpu_milli=1),
        Request(gpus=2, gpu_mib=1_000),
        Request(gpus=1, gpu_mib=1_500),
    )
    roles = tuple(Role(request, f"r{number}", 1) for number, request in enumerate(requests))
    ways = ways_to_start(Workload("default/w", roles, groups=(SubGroup(minimum=1),)), [0] * len(roles))
    assert [way[0][0] for way in ways] == [2, 1, 3, 5, 4, 0]


def test_the_pods_that_start_together_are_told_by_the_roles_that_miss_some() -> None:
    roles = (Role(ONE, "x", 2, 2), Role(ONE, "y", 3, 1))
    workload = Workload("default/w", roles, groups=(SubGroup(),))
    assert choices_of(workload, ()) == (False, ((2, 1),), ("x", "y"))
    assert choices_of(workload, ("x-0", "x-1", "y-0")) == (True, ((1,),), ("y",))
