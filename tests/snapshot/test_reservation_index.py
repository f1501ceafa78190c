"""Whose work may use a reservation of a queue: that of the queue and of all queues below it."""

import pytest

from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload import Workload
from kaiwo.snapshot.reserved_devices import ReservationIndex

QUEUES = {
    **{name: Queue(name, parent) for name, parent in (("top", ""), ("mid", "top"), ("leaf", "mid"))},
    **{name: Queue(name, parent) for name, parent in (("one", "other"), ("other", "one"))},  # a circle, refused above
}


@pytest.mark.parametrize(
    ("owner", "queue", "is_admitted"),
    [
        ("leaf", "leaf", True),
        ("top", "leaf", True),
        ("leaf", "mid", False),
        ("one", "leaf", False),
        ("one", "one", True),
        ("other", "one", True),
        ("top", "one", False),
        ("gone", "gone", True),
        ("top", "gone", False),
    ],
)
def test_work_of_a_queue_and_of_queues_below_it(owner: str, queue: str, is_admitted: bool) -> None:
    reservation = Reservation("r", owner=ReservationOwner(queue=owner))
    workload = Workload("default/w", (), queue=queue)
    assert ReservationIndex().admits(reservation, workload, QUEUES) == is_admitted
