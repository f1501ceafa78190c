"""Who brings work, and for whom he may.

In:    the user as the API server knows him.   Out: whether a controller asks for somebody, and who may name others.
"""

from typing import NamedTuple

from kaiwo.clusters.kubernetes.webhooks.admission_review import UserInfo
from kaiwo.clusters.kubernetes.webhooks.workload_objects import Work

ACCOUNT = "system:serviceaccount:"
MANAGER = "system:kube-controller-manager"
MASTERS = "system:masters"


class House(NamedTuple):
    """The rules of this installation."""

    scheduler: str
    may_name_users: frozenset[str] = frozenset()  # users and groups who bring work for others


class Person(NamedTuple):
    """Whoever asks."""

    name: str
    groups: tuple[str, ...] = ()

    def is_controller_of(self, work: Work) -> bool:
        """It makes the pods of an object that somebody else brought: that one was asked about already.

        A tenant's own account works in its own namespace, and could write any owner on a pod; operators have theirs.
        """
        if not work.controller:
            return False
        if self.name.startswith(ACCOUNT):
            return self.name.removeprefix(ACCOUNT).partition(":")[0] != work.namespace
        return self.name == MANAGER

    def may_name(self, user: str, house: House) -> bool:
        """Work that says it is this user's."""
        names = {self.name, *self.groups}
        return user == self.name or MASTERS in names or not house.may_name_users.isdisjoint(names)


def person_of(info: UserInfo) -> Person:
    return Person(info.username, info.groups or ())
