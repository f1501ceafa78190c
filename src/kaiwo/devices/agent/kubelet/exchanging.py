"""Let two pods have each other's devices: the kubelet started one on those of the other.

In:    what was handed out under one set of names, and the containers that really have them.   Out: a book and grants in
       which each has what it was started with.
Never: gives a device to two pods, or to two containers of a pod that run at the same time.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kaiwo.devices.agent.kubelet.book import Allocation, Book
from kaiwo.devices.agent.kubelet.matching import Match, exchanged
from kaiwo.devices.assigned import read_assigned
from kaiwo.devices.sharing import Sharing


def can_exchange(book: Book, here: Sequence[Allocation], users: Sequence[Match], corrected: dict[str, str]) -> bool:
    """No when a pod would have a device twice, or one that a third has got by now.

    That is so when containers were taken for ones that use devices one after the other, and do not.
    """
    mine, theirs = _now(here[0].match, corrected), _now(users[0], corrected)
    before = {match.pod.uid: _gpus(match.pod.assigned) for match in (mine, theirs)}
    corrected |= exchanged(mine, theirs)
    is_theirs = {share.gpu for share in mine.shares} <= set().union(*before.values())
    is_as_many = all(len(_gpus(corrected[uid])) >= len(gpus) for uid, gpus in before.items())
    return is_theirs and is_as_many and all(one.match.shares == theirs.shares for one in _others(book, here, users))


def exchange(book: Book, sharing: Sharing, here: Sequence[Allocation], users: Sequence[Match]) -> None:
    """These containers get what they were started with, and the others what is written for these."""
    mine, theirs = _now(here[0].match, book.corrected), _now(users[0], book.corrected)
    written, others = exchanged(mine, theirs), _others(book, here, users)
    book.correct(written)
    new = []
    for one, user in zip(here, users, strict=True):
        started = replace(user, pod=replace(user.pod, assigned=written[theirs.pod.uid]), shares=mine.shares)
        waits = replace(one.match, pod=replace(one.match.pod, assigned=written[mine.pod.uid]), shares=theirs.shares)
        new.append((one, replace(one, match=started, is_verified=True)))
        turn = (user.pod.uid, user.container)
        those = [other for other in others if other.turn == turn]
        new += [(other, replace(other, match=replace(waits, is_certain=False))) for other in those]
        if not those:
            book.exchange_served(one.turn, turn)
    sharing.rename(here[0].owner, new[0][1].owner)
    book.replace(new)


def _others(book: Book, here: Sequence[Allocation], users: Sequence[Match]) -> list[Allocation]:
    """What these were given themselves, in their own name or in another's."""
    turns = [(user.pod.uid, user.container) for user in users]
    return [one for one in book.allocations if one.turn in turns and one not in here]


def _now(match: Match, corrected: Mapping[str, str]) -> Match:
    """With the devices that its pod really has."""
    return replace(match, pod=replace(match.pod, assigned=corrected.get(match.pod.uid, match.pod.assigned)))


def _gpus(assigned: str) -> set[str]:
    return {share.gpu for share in read_assigned(assigned)}
