"""A pod's priority: as the API server wrote it, or as its class says where nobody wrote it."""

from kaiwo.clusters.kubernetes.objects import Meta, PriorityClass
from kaiwo.clusters.kubernetes.priorities import Priorities
from kaiwo.model.workload import Workload
from tests.kubernetes.making import seen_pod, some_books


def classes(*found: tuple[str, int, bool]) -> Priorities:
    priorities = Priorities()
    for name, value, is_default in found:
        priorities.put(PriorityClass(Meta(name), value, is_default))
    return priorities


def test_what_is_written_on_the_pod_counts_first() -> None:
    priorities = classes(("high", 1000, False), ("usual", 5, True))
    assert priorities.of(seen_pod("w", priority=7, priorityClassName="high")) == (7, True)
    assert priorities.of(seen_pod("w", priority=7)) == (7, False)


def test_the_class_counts_where_nobody_wrote_it_and_the_default_where_there_is_no_class() -> None:
    priorities = classes(("high", 1000, False), ("usual", 5, True))
    assert priorities.of(seen_pod("w", priorityClassName="high")) == (1000, True)
    assert priorities.of(seen_pod("w")) == (5, True)
    assert priorities.of(seen_pod("w", priorityClassName="unknown")) == (0, True)
    assert Priorities().of(seen_pod("w")) == (0, False)
    priorities.drop(PriorityClass(Meta("high")))
    assert priorities.of(seen_pod("w", priorityClassName="high")) == (0, True)


def test_the_scheduler_is_told_the_priority_of_the_class() -> None:
    books = some_books()
    books.priorities.put(PriorityClass(Meta("high"), 1000))
    books.put_pod(seen_pod("w", priorityClassName="high"))
    books.settle()
    workload: Workload = books.told.workloads["default/w"]
    assert workload.priority == 1000
