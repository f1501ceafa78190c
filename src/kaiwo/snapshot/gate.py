"""What keeps a workload from being tried at all: a hold, others that it waits for, a time, its own pods that leave."""

from typing import TYPE_CHECKING

from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.workload import LEAVING, Workload

if TYPE_CHECKING:
    from kaiwo.snapshot.picture import Picture


def gate_of(picture: "Picture", workload: Workload, now_s: int) -> tuple[Obstacle, ...]:
    """What keeps a workload from being tried at all."""
    found: list[Obstacle] = []
    if workload.held:
        found.append(Obstacle(Reason.HELD, subject=workload.name))
    found.extend(Obstacle(Reason.DEPENDENCY, 1, 0, "workloads", name) for name in workload.after)
    found.extend(Obstacle(Reason.DEPENDENCY_FAILED, 1, 0, "workloads", name) for name in workload.after_failed)
    if workload.not_before_s > now_s:
        found.append(Obstacle(Reason.NOT_BEFORE, workload.not_before_s, 0, "s", detail=workload.not_before_why))
    if 0 < workload.expires_s <= now_s:
        found.append(Obstacle(Reason.EXPIRED, workload.expires_s, 0, "s", workload.name))
    leaving = sum(1 for pod in picture.pods.get(workload.name, {}).values() if pod.phase in LEAVING)
    if leaving:
        found.append(Obstacle(Reason.RELEASING, leaving, 0, "pods", workload.name))
    return tuple(found)
