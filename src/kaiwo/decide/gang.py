"""Place one workload: all the pods it needs, or none.

In:    a waiting class and one of its workloads.   Out: its starts, or None with nothing changed.
"""

from kaiwo.decide.place import Placed, Placer
from kaiwo.model.plan import Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload, pod_name
from kaiwo.snapshot.backlog import Needs
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import ENDLESS, Charge
from kaiwo.snapshot.working import Working


def charge_of(want: Request, placed: list[Placed]) -> Charge:
    """What a queue pays for these pods."""
    return sum(each.milli for each in placed), want.cpu_milli * len(placed), want.memory_mib * len(placed)


def least_charge(picture: Picture, needs: Needs, workloads: int = 1) -> Charge:
    """The least a queue would pay for the pods without which such workloads do not start."""
    milli = cpu = memory = 0
    for shape, _, needed in needs:
        want = picture.backlog.shapes[shape]
        milli += needed * want.charge_milli
        cpu += needed * want.cpu_milli
        memory += needed * want.memory_mib
    return milli * workloads, cpu * workloads, memory * workloads


def within_limits(working: Working, queue: int, charge: Charge) -> bool:
    """The queue and all above it stay within their limits."""
    if not working.queues.is_bounded[queue]:
        return True
    limit, used = working.queues.limit, working.queue_used
    for above in working.queues.path[queue]:
        for resource in range(3):
            bound = limit[above, resource]
            if bound < ENDLESS and charge[resource] and used[above, resource] + charge[resource] > bound:
                return False
    return True


def place_workload(
    working: Working, placer: Placer, picture: Picture, workload: Workload, needs: Needs, limits: bool = True
) -> list[Start] | None:
    """Everything needed in one trial; then, one pod at a time, what it could use beyond that.

    `limits=False` asks about the nodes alone, whatever the queues say.
    """
    queue = working.queues.row[workload.queue]
    starts: list[Start] = []
    missing = _missing_pods(picture, workload)
    with working.trial() as attempt:
        _give_back_kept_space(working, picture, workload)
        for at in _largest_first(picture, needs):
            shape, _, needed = needs[at]
            want = picture.backlog.shapes[shape]
            placed = placer.place(shape, want, needed)
            charge = charge_of(want, placed)
            if len(placed) < needed or (limits and not within_limits(working, queue, charge)):
                return None
            working.charge(queue, charge)
            starts.extend(_start(workload, missing[at].pop(0), each) for each in placed)
        attempt.keep()
    starts.extend(_grow(working, placer, picture, workload, needs, missing))
    return starts or None


def _grow(
    working: Working, placer: Placer, picture: Picture, workload: Workload, needs: Needs, missing: list[list[str]]
) -> list[Start]:
    """Elastic roles take what else there is, within the limits."""
    queue = working.queues.row[workload.queue]
    starts = []
    for at, (shape, count, needed) in enumerate(needs):
        want = picture.backlog.shapes[shape]
        for _ in range(count - needed):
            with working.trial() as attempt:
                placed = placer.place(shape, want, 1)
                charge = charge_of(want, placed)
                if not placed or not within_limits(working, queue, charge):
                    break
                working.charge(queue, charge)
                attempt.keep()
            starts.append(_start(workload, missing[at].pop(0), placed[0]))
    return starts


def _largest_first(picture: Picture, needs: Needs) -> list[int]:
    """Large pods are placed before small ones could take their room; equal ones in the workload's order."""

    def size(at: int) -> tuple[int, int, int]:
        want = picture.backlog.shapes[needs[at][0]]
        return (-want.gpus * (want.gpu_milli if not want.is_memory else 1), -want.cpu_milli, at)

    return sorted(range(len(needs)), key=size)


def first_missing_pod(picture: Picture, workload: Workload) -> str:
    """The pod that a workload misses when it misses one: its only one, or what is left of a larger one."""
    if len(workload.roles) == 1 and workload.name not in picture.pods:
        return pod_name(workload.roles[0], 0)
    return _missing_pods(picture, workload)[0][0]


def _missing_pods(picture: Picture, workload: Workload) -> list[list[str]]:
    """Per role that misses pods: their names, in order."""
    present = picture.pods.get(workload.name, {})
    names = [[n for i in range(role.count) if (n := pod_name(role, i)) not in present] for role in workload.roles]
    return [each for each in names if each]


def _start(workload: Workload, pod: str, placed: Placed) -> Start:
    return Start(workload.name, pod, placed.node, placed.devices)


def _give_back_kept_space(working: Working, picture: Picture, workload: Workload) -> None:
    """Space that is kept for this workload is free to it alone."""
    for nomination in picture.nominations.get(workload.name, {}).values():
        working.give_back(nomination)
