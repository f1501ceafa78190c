"""The user or service account that submits a workload, and for which users they may submit."""

from typing import NamedTuple

from kaiwo.clusters.kubernetes.webhooks.admission_review import UserInfo
from kaiwo.clusters.kubernetes.webhooks.workload_objects import WorkloadObject

ACCOUNT = "system:serviceaccount:"
MANAGER = "system:kube-controller-manager"
MASTERS = "system:masters"


class WebhookPolicy(NamedTuple):
    """The settings of this installation that the webhooks apply."""

    scheduler: str
    may_name_users: frozenset[str] = frozenset()  # users and groups who may submit for others


class Requester(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()

    def created_by_controller(self, work: WorkloadObject) -> bool:
        """The object was made by a controller for another object, which was reviewed already.

        A service account of the object's own namespace does not count: a tenant could write any owner on a pod.
        """
        if not work.controller:
            return False
        if self.name.startswith(ACCOUNT):
            return self.name.removeprefix(ACCOUNT).partition(":")[0] != work.namespace
        return self.name == MANAGER

    def may_submit_for(self, user: str, policy: WebhookPolicy) -> bool:
        names = {self.name, *self.groups}
        return user == self.name or MASTERS in names or not policy.may_name_users.isdisjoint(names)


def requester_of(info: UserInfo) -> Requester:
    return Requester(info.username, info.groups or ())
