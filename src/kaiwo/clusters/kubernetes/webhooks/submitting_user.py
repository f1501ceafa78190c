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
    trusted_controllers: frozenset[str] = frozenset(
        (MANAGER,)
    )  # who make pods for others; accounts as `namespace:name`


class Requester(Wire):
    """The user who makes the request, as the API server sends it."""

    username: str = ""
    groups: tuple[str, ...] | None = None

    def created_by_controller(self, work: WorkloadObject, policy: WebhookPolicy) -> bool:
        """The object was made by a trusted controller for another object, which was reviewed already.

        Nobody else counts: a tenant can write any owner on a pod.
        """
        return bool(work.controller) and self.is_trusted_controller(policy)

    def is_trusted_controller(self, policy: WebhookPolicy) -> bool:
        account = self.username.removeprefix(ACCOUNT) if self.username.startswith(ACCOUNT) else ""
        return (account or self.username) in policy.trusted_controllers

    def may_submit_for(self, user: str, policy: WebhookPolicy) -> bool:
        names = {self.username, *(self.groups or ())}
        return user == self.username or MASTERS in names or not policy.may_name_users.isdisjoint(names)
