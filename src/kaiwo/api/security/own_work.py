"""What belongs to a person: what they may see and change of work, and into which queues they may submit.

Everybody who may read sees the cluster: nodes, queues, and of all work its name, user, size, state and reasons. Only
its own user, operators and administrators see its command and its log, attach to its console, and change it.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kaiwo.api.http.problems import ProblemError, forbidden, quote
from kaiwo.api.security.access import AccessControl
from kaiwo.api.security.roles import ALL_QUEUES, Identity, Right
from kaiwo.api.views.workloads import WorkloadDetail
from kaiwo.manifests import Parsed
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord

HIDDEN = "Its command and its log are shown to its user, to operators and to admins."


def may_see(person: Identity, record: WorkloadRecord) -> bool:
    """Whether they see its command and its log."""
    return person.has(Right.OPERATE) or person.owns(record.workload.user)


def check_sight(access: AccessControl, person: Identity, record: WorkloadRecord, what: str) -> None:
    """Refuse to show `what`, such as `log`, of somebody else's work."""
    if not may_see(person, record):
        raise not_yours(access, person, record.workload, f"see the {what} of")


def conceal(detail: WorkloadDetail, person: Identity, record: WorkloadRecord) -> WorkloadDetail:
    """The details without what is not for this person."""
    return detail if may_see(person, record) else replace(detail, command=[], image="", secret_env=[], hidden=HIDDEN)


def may_change(person: Identity, record: WorkloadRecord) -> bool:
    """Whether they may hold, requeue and cancel it: what `check_change` and the right of those routes say together."""
    return person.has(Right.SUBMIT) and (person.has(Right.OPERATE) or person.owns(record.workload.user))


def only_of(person: Identity) -> str | None:
    """The user whose work this person may change; None: everybody's."""
    return None if person.has(Right.OPERATE) else person.name


def check_change(access: AccessControl, person: Identity, record: WorkloadRecord) -> None:
    if not person.has(Right.OPERATE) and not person.owns(record.workload.user):
        raise not_yours(access, person, record.workload, "change")


def not_yours(access: AccessControl, person: Identity, workload: Workload, verb: str) -> ProblemError:
    whose = f"belongs to {quote(workload.user)}" if workload.user else "belongs to no known user"
    return forbidden(
        403,
        f"workload {workload.name} {whose}, and {person.name} has the role {person.role}, which may not {verb} "
        f"other people's work; this needs the role operator or admin: ask {access.whom_to_ask()}",
    )


def check_documents(access: AccessControl, person: Identity, parsed: Parsed) -> None:
    """Queues and partition plans are for administrators, reservations for operators, whatever route brings them."""
    if parsed.queues or parsed.partitioning:
        access.require(person, Right.ADMINISTER)
    if parsed.reservations:
        access.require(person, Right.OPERATE)


def check_submissions(
    access: AccessControl, person: Identity, workloads: Sequence[Workload], queues: Mapping[str, Queue]
) -> None:
    """A user submits in their own name, and into their own queues."""
    if person.has(Right.OPERATE):
        return
    for workload in workloads:
        if not person.owns(workload.user):
            raise forbidden(
                403,
                f"workload {workload.name} names the user {quote(workload.user)}, but {person.name} may submit only in "
                "their own name; leave out the user",
            )
        if not may_use(person, workload.queue, queues):
            raise forbidden(
                403,
                f"workload {workload.name}: {person.name} may not submit into queue {workload.queue}, only into "
                f"{', '.join(person.queues)}; name one of these, or ask {access.whom_to_ask()}",
            )


def may_use(person: Identity, queue: str, queues: Mapping[str, Queue]) -> bool:
    """A person of a queue may use those below it, too."""
    if ALL_QUEUES in person.queues:
        return True
    seen = set()
    while queue and queue not in seen:
        if queue in person.queues:
            return True
        seen.add(queue)
        queue = queues[queue].parent if queue in queues else ""
    return False
