"""What keeps a pod from being tried, and what keeps it where it is, whatever room there is.

In:    a pod, and the books of queues, reservations, budgets and Kueue.   Out: sentences; empty where nothing does.
Never: keeps anything.
"""

from collections.abc import Mapping, Sequence

from kaiwo.clusters.kubernetes.budgets import Budgets
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_REQUIRED
from kaiwo.clusters.kubernetes.kueue.book import KueueBook, unassigned_topology
from kaiwo.clusters.kubernetes.seen import SeenPod
from kaiwo.clusters.kubernetes.shelf import Shelf
from kaiwo.clusters.kubernetes.wishes import Wishes
from kaiwo.model.queue import THE_DEFAULT, Queue
from kaiwo.model.reservation import Reservation


def explain_fault_above(wishes: Wishes, queues: Shelf[Queue], reservations: Shelf[Reservation]) -> str:
    """Why a workload must wait until somebody mends its queue or its reservation: no version of it is known."""
    fault = queues.faults.get(wishes.queue)
    if fault and queues.items.get(wishes.queue, THE_DEFAULT) is THE_DEFAULT:
        return f"its queue '{wishes.queue}' cannot be read: {fault}"
    fault = reservations.faults.get(wishes.reservation)
    if fault and wishes.reservation not in reservations.items:
        return f"its reservation '{wishes.reservation}' cannot be read: {fault}"
    return ""


def explain_kueue(pod: SeenPod, kueue: KueueBook, is_in_gang: bool) -> str:
    """Why Kueue keeps a pod from starting."""
    if pod.is_gated:
        return kueue.sentence(pod)
    level = unassigned_topology(pod) if is_in_gang else ""
    if not level:
        return ""
    return (
        f"its pods must share one {level} ({KUEUE_REQUIRED}), and nobody has chosen which; let Kueue admit it, "
        "or remove the annotation"
    )


def count_who_may_go(pods: Sequence[SeenPod], budgets: Budgets, staying: Mapping[str, str]) -> tuple[int, str]:
    """How many of these the server would evict now, and why it would never evict one.

    `staying`: by UID, the server's words where it refused for good.
    """
    refused = next((staying[pod.uid] for pod in pods if pod.uid in staying), "") if staying else ""
    why = budgets.why_never(pods) or refused
    return (0, why) if why else (budgets.allowed(pods), "")
