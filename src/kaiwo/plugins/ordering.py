"""Where a workload stands in its queue: the keys of every order plugin, one after the other.

In:    a workload.   Out: its keys, and what an order did wrong on the way.
"""

from dataclasses import dataclass

from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import WorkloadOrder
from kaiwo.snapshot.backlog import Fault, Keys

LAST = 2**62


@dataclass(frozen=True, slots=True)
class Ordering:
    """Asked once for each workload, when it arrives or changes."""

    plugins: tuple[WorkloadOrder, ...]
    policy: Policy

    def __call__(self, workload: Workload) -> tuple[Keys, tuple[Fault, ...]]:
        """A plugin that raises or returns nonsense puts this workload last by its own word, and is reported."""
        keys: list[tuple[int, ...]] = []
        faults: list[Fault] = []
        for plugin in self.plugins:
            try:
                key = plugin.workload_order(workload, self.policy)
                detail = "" if _is_key(key) else f"returned {key!r} where a tuple of integers was due"
            except KeyboardInterrupt:
                raise  # a person's wish, whoever is at work
            except BaseException as error:  # a stranger's code may raise anything; the next plan's notes say so
                key, detail = (), f"raised {type(error).__name__}: {error}"
            if detail:
                faults.append((plugin.name, detail))
            keys.append((LAST,) if detail else key)
        return tuple(keys), tuple(faults)


def _is_key(key: object) -> bool:
    return isinstance(key, tuple) and all(isinstance(part, int) for part in key)
