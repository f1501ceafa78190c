"""Shapes are numbers of equal requests; those that nobody waits with are given to others after a while."""

from kaiwo.model.request import Request
from kaiwo.snapshot.request_shapes import MAX_IDLE, RequestShapes


def request(number: int) -> Request:
    return Request(cpu_milli=number)


def filled(count: int) -> RequestShapes:
    shapes = RequestShapes()
    assert [shapes.shape_of(request(number)) for number in range(count)] == list(range(count))
    return shapes


def test_equal_requests_have_one_shape() -> None:
    shapes = filled(3)
    assert shapes.shape_of(request(1)) == 1
    assert shapes[2] == request(2)


def test_as_many_as_may_be_idle_stay() -> None:
    assert filled(MAX_IDLE).retire() == []
    assert filled(MAX_IDLE + 1).retire() == [0]
    assert filled(MAX_IDLE + 2).retire() == [0, 1]


def test_a_shape_in_use_is_not_given_up_and_counts_as_fresh_once_nobody_uses_it() -> None:
    shapes = filled(MAX_IDLE + 2)
    shapes.use(0)
    shapes.use(0)
    shapes.release(0)
    assert shapes.retire() == [1]
    shapes.release(0)
    assert shapes.retire() == [2]
    assert shapes.shape_of(request(0)) == 0


def test_the_number_of_a_shape_that_was_given_up_is_used_again() -> None:
    shapes = filled(MAX_IDLE + 1)
    shapes.retire()
    other = shapes.copy()
    assert shapes.shape_of(request(9_999)) == 0
    assert shapes[0] == request(9_999)
    assert shapes.shape_of(request(0)) == MAX_IDLE + 1
    assert other.shape_of(request(8_888)) == 0  # the copy goes its own way
    assert (shapes[0], other[0]) == (request(9_999), request(8_888))
