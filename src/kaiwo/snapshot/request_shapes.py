"""The shape of a request is a number that equal requests share: fit and scores are cached by shape, not by workload.

In:    requests.   Out: a small number for each distinct request, reused once no workload has waited with it for long.
"""

from kaiwo.model.request import Request

MAX_IDLE = 256  # shapes without waiting work: work that starts at once often comes again


class RequestShapes:
    """A cache keyed by shape must drop what `retire` returns."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._numbers: dict[Request, int] = {}
        self._users: list[int] = []
        self._idle: dict[int, None] = {}  # the longest idle first
        self._vacant: list[int] = []

    def __getitem__(self, shape: int) -> Request:
        return self._requests[shape]

    def shape_of(self, request: Request) -> int:
        found = self._numbers.get(request)
        if found is None:
            found = self._numbers[request] = self._vacant.pop() if self._vacant else self._append()
            self._requests[found] = request
            self._idle[found] = None
        return found

    def use(self, shape: int) -> None:
        self._users[shape] += 1
        self._idle.pop(shape, None)

    def release(self, shape: int) -> None:
        self._users[shape] -= 1
        if not self._users[shape]:
            self._idle[shape] = None

    def retire(self) -> list[int]:
        """Give up shapes, the longest idle first, and return them."""
        retired = []
        while len(self._idle) > MAX_IDLE:
            shape = next(iter(self._idle))
            del self._idle[shape]
            del self._numbers[self._requests[shape]]
            self._vacant.append(shape)
            retired.append(shape)
        return retired

    def copy(self) -> "RequestShapes":
        other = RequestShapes()
        other._requests, other._numbers = list(self._requests), dict(self._numbers)
        other._users, other._idle, other._vacant = list(self._users), dict(self._idle), list(self._vacant)
        return other

    def _append(self) -> int:
        self._requests.append(Request())
        self._users.append(0)
        return len(self._requests) - 1
