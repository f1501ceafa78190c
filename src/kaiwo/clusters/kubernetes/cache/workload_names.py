"""Name workloads: short for people, and never two of one name.

In:    a unit.   Out: `namespace/name`, the same for as long as the unit lives.
"""

import hashlib

from kaiwo.clusters.kubernetes.decode.pod_decoder import Key
from kaiwo.clusters.kubernetes.gangs import GangId

Unit = GangId | Key  # a gang, or a pod on its own


class WorkloadNames:
    """Units and their names."""

    def __init__(self) -> None:
        self.unit_of: dict[str, Unit] = {}
        self._name_of: dict[Unit, str] = {}

    def name(self, unit: Unit) -> str:
        """The plain name. A pod and a Job, or a Job and its successor, may share it: the second gets a suffix."""
        found = self._name_of.get(unit)
        if found is None:
            found = _plain(unit)
            if found in self.unit_of:
                suffix = hashlib.blake2b(repr(unit).encode(), digest_size=3).hexdigest()
                found = f"{found}.{suffix}"
            self._name_of[unit] = found
            self.unit_of[found] = unit
        return found

    def find(self, unit: Unit) -> str | None:
        """The name of a unit that has one."""
        return self._name_of.get(unit)

    def delete(self, unit: Unit) -> None:
        """The unit is gone."""
        name = self._name_of.pop(unit, None)
        if name is not None:
            del self.unit_of[name]


def _plain(unit: Unit) -> str:
    if not isinstance(unit, GangId):
        return f"{unit[0]}/{unit[1]}"
    key = unit.key
    return f"{key.namespace}/{key.name}" + (f"-{key.part}" if key.part else "")
