"""What keeps the tenants of one GPU apart, as far as this cluster cares: something that is asked before a run begins.

In:    a run and the devices it holds.   Out: variables, and the cgroup to begin in.
The real one is built on `devices.sharing` and given to the cluster from outside; virtual devices need none.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from kaiwo.model.gpu import Share


class Kept(NamedTuple):
    """How a run is kept apart from its neighbours."""

    env: dict[str, str]
    cgroup: str = ""


class Shares(Protocol):
    """The GPUs of this machine and who has which part of them. Called from a thread; may take some milliseconds."""

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> Kept:
        """Before the run begins. The same run gets the same again; an OSError says why it cannot be had so."""

    def grade_of(self, run_id: str) -> str:
        """How well a run is kept apart; empty when it holds nothing here."""

    def release(self, run_id: str) -> None:
        """The run is over."""

    def keep_only(self, run_ids: Collection[str]) -> None:
        """After a start: no other run goes on."""

    def tend(self) -> None:
        """Now and then: see to it that everything they stand on still stands."""
