"""How the local cluster asks for GPU shares before a run starts; the provider is given to it from outside.

In:    a run and the devices that it holds.   Out: environment variables, and the cgroup to start in.
The real provider is built on `devices.sharing`; virtual devices need none.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from kaiwo.model.gpu import Share


class RunShare(NamedTuple):
    """What isolates a run from the other tenants of its GPUs."""

    env: dict[str, str]
    cgroup: str = ""


class ShareProvider(Protocol):
    """The GPUs of this machine and their tenants. Called from a thread; may take some milliseconds."""

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> RunShare:
        """Before the run starts. The same run gets the same share again; an OSError says why there is none."""

    def grade_of(self, run_id: str) -> str:
        """How well a run is isolated; empty when it holds nothing here."""

    def release(self, run_id: str) -> None:
        """The run is over."""

    def keep_only(self, run_ids: Collection[str]) -> None:
        """After a restart: no other run goes on."""

    def keep_alive(self) -> None:
        """Called now and then: restart the services that the shares need."""
