"""The user or service account that submits a workload, and the users in whose name they may do so."""

from typing import NamedTuple

from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.clusters.kubernetes.webhooks.workload_objects import WorkloadObject

ACCOUNT = "system:serviceaccount:"
MANAGER = "system:kube-controller-manager"
MASTERS = "system:masters"


class WebhookPolicy(NamedTuple):
    scheduler: str
    may_name_users: frozenset[str] = frozenset()  # users and groups who may submit for others


class Requester(Wire):
    """The user who makes the request, as the API server sends it."""

    username: str = ""
    groups: tuple[str, ...] | None = None

    def created_by_controller(self, work: WorkloadObject) -> bool:
        """The object was made by a controller for another object, which was reviewed already.

        A service account of the object's own namespace does not count: a tenant could write any owner on a pod.
        """
        if not work.controller:
            return False
        if self.username.startswith(ACCOUNT):
            return self.username.removeprefix(ACCOUNT).partition(":")[0] != work.namespace
        return self.username == MANAGER

    def may_submit_for(self, user: str, policy: WebhookPolicy) -> bool:
        names = {self.username, *(self.groups or ())}
        return user == self.username or MASTERS in names or not policy.may_name_users.isdisjoint(names)
