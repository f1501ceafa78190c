"""Place one workload: all the pods it needs, or none."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.decide.placement.place_by_level import LevelSearch, PodBatch
from kaiwo.decide.placement.place_pods import Placed, Placer, charge_of_placed, place_pods
from kaiwo.decide.placement.queue_limits import Payer, charge_of, times_within_limits
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.plan import DomainChoice, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Role, Workload, leading_roles, pod_name, pods_per_role, role_name
from kaiwo.snapshot.backlog import RoleNeeds, with_required
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.subgroup_choices import PodsByRole, choices_of, ways_to_grow

ALL_PODS = 1 << 40  # more than any workload has


class FollowerPlace(NamedTuple):
    """A place in the domain of a leader, for a pod that does not exist yet."""

    pod: str
    place: Placed
    want: Request


class Placement(msgspec.Struct):
    starts: list[Start] = []
    given_up: list[tuple[str, str]] = []
    gang: "_Gang | None" = None  # if it could use more pods
    domains: list[DomainChoice] = []  # of the network, for work with levels
    followers: list[FollowerPlace] = []  # kept for pods that are made once these run

    def grow(self, most: int) -> list[Start]:
        return [] if self.gang is None else self.gang.grow(most)


def place_workload(
    placer: Placer, state: ClusterState, workload: Workload, needs: RoleNeeds, limits: bool = True, grows: bool = True
) -> Placement | None:
    """Everything needed in one trial; then, when it grows, what it could use beyond that.

    Pods go where they are nominated. Only when the workload cannot start that way are all its nominations given up
    and their space used like any other. `limits=False` checks the nodes alone, without the limits of queues.
    """
    ways = _ways(state, workload, needs) if workload.groups and grows else [needs]
    gangs = [_Gang(placer, state, workload, way, limits) for way in ways]
    for pools_nominations in (False, True) if gangs[0].kept else (False,):
        for gang in gangs:
            gang.grows = grows
            if (placement := gang.place(pools_nominations)) is not None:
                return placement
    return None


def _ways(state: ClusterState, workload: Workload, needs: RoleNeeds) -> list[RoleNeeds]:
    """The alternatives of a workload with sub-groups, the cheapest first. A running one may grow by any step; only a
    step with nominations starts as a whole."""
    choices = choices_of(workload, state.pods.get(workload.name, ()))
    every = [with_required(needs, needed) for needed in choices.needed]
    if not choices.is_running:
        return every
    return [*every, needs] if workload.name in state.nominations else [needs]


def leaders_first(workload: Workload, starts: list[Start]) -> list[Start]:
    """Leaders start first, since the other pods look for them; otherwise the order stays."""
    leaders = leading_roles(workload)
    if not leaders:
        return starts
    first, rest = list[Start](), list[Start]()
    for each in starts:
        (first if role_name(each.pod) in leaders else rest).append(each)
    return first + rest


def first_missing_pod(state: ClusterState, workload: Workload) -> str:
    """The only pod of a workload, or the first that a larger one lacks."""
    if len(workload.roles) == 1 and workload.name not in state.pods:
        return pod_name(workload.roles[0], 0)
    return _missing_pods(state, workload)[0][0]


class _Gang:
    def __init__(self, placer: Placer, state: ClusterState, workload: Workload, needs: RoleNeeds, limits: bool) -> None:
        self._working, self._placer, self._state = placer.working, placer, state
        self._workload, self._needs = workload, needs
        self._payer = Payer(placer.working.queues.row[workload.queue], not workload.preemptible, limits)
        self.grows = True
        self.kept = state.nominations.get(workload.name, {})
        self._levels = levels_of(workload)
        self._has_pooled = False  # its nominations were given up
        self._search: LevelSearch | None = None  # None: its pods may run on any node

    def place(self, pools_nominations: bool) -> Placement | None:
        if self._workload.groups and not self.kept and not self._could_fit():
            return None
        for order in self._orders():
            self._missing = _missing_pods(self._state, self._workload)
            self._placement = Placement()
            with self._working.trial() as attempt:
                if self._levels is not None:
                    self._search = self._search_by_level()
                self._has_pooled = pools_nominations
                if pools_nominations:
                    self._pool_nominations()
                else:
                    self._use_nominations()
                if self._place_all_needed(order):
                    if self.grows:
                        self._grow_by_steps() if self._workload.groups else self._grow(ALL_PODS)
                    if self._placement.starts:
                        self._placement.domains = self._search.choices() if self._search is not None else []
                        self._placement.starts = leaders_first(self._workload, self._placement.starts)
                        self._placement.gang = self if any(self._missing) and not self._workload.groups else None
                        self._record_moves(self._placement.starts)
                        attempt.keep()
                        return self._placement
        return None

    def grow(self, most: int) -> list[Start]:
        before = len(self._placement.starts)
        if self._search is not None:
            self._search.others_were_placed()
        self._grow(most)
        self._record_moves(self._placement.starts[before:])
        return self._placement.starts[before:]

    def _record_moves(self, starts: list[Start]) -> None:
        """Work of several pods uses links between nodes."""
        if self._working.follows_moves and (len(self._workload.roles) > 1 or self._workload.roles[0].count > 1):
            self._working.move(self._workload.name, [self._working.nodes.row[start.node] for start in starts], +1)

    def _could_fit(self) -> bool:
        """Counting rules out most choices of sub-groups."""
        return all(self._placer.room(shape) >= needed for shape, _, needed in self._needs if needed)

    def _orders(self) -> Iterator[list[int]]:
        """Large pods first, or those with the least room left over; those that must be near others after them.

        Where none of these finds places, those that must be nearest to each other come first.
        """
        largest = sorted(range(len(self._needs)), key=lambda at: (_follows(self._want(at)), self._size(at)))
        yield largest
        if len(largest) > 1:
            tightest = sorted(largest, key=lambda at: self._placer.room(self._needs[at].shape) - self._needs[at].needed)
            for order in (tightest, largest[::-1]):
                if order != largest:
                    yield order
            if self._search is not None:
                by_level = sorted(largest, key=lambda at: -self._narrowest_level(at))
                if by_level not in (largest, tightest, largest[::-1]):
                    yield by_level

    def _narrowest_level(self, at: int) -> int:
        """The narrowest level that pods of a role require: where it is narrow, they have the fewest places."""
        assert self._search is not None, "only work with levels has them"
        return self._search.narrowest_level(self._numbers[at])

    def _size(self, at: int) -> tuple[int, int, int]:
        want = self._want(at)
        return (
            -want.gpus * (want.gpu_milli if not want.is_memory else max(1, want.fraction_milli)),
            -want.cpu_milli,
            at,
        )

    def _search_by_level(self) -> LevelSearch:
        """The search for domains, which knows where pods of the workload run."""
        assert self._levels is not None, "only work with levels is placed by level"
        search = LevelSearch(self._placer, self._payer, self._workload.name, self._levels)
        rows = self._working.nodes.row
        numbers = {role.name: number for number, role in enumerate(self._workload.roles)}
        for name, pod in sorted(self._state.pods.get(self._workload.name, {}).items()):
            number = numbers.get(role_name(name))
            if pod.phase in ACTIVE_PHASES and pod.node in rows and number is not None:
                search.add_pod(number, name, rows[pod.node])
        present = self._state.pods.get(self._workload.name, ())
        counts = pods_per_role(self._workload, present)
        self._numbers = [at for at, role in enumerate(self._workload.roles) if counts[at] < role.count]
        return search

    def _place_all_needed(self, order: list[int]) -> bool:
        """The pods without which the workload does not start."""
        if self._search is None:
            return all(self._place_needed(at) for at in order)
        return self._place_by_level([(at, self._still_needed(at)) for at in order], self._followers())

    def _followers(self) -> list[PodBatch]:
        """The pods that will follow leaders which start now, but for those whose places are kept already."""
        assert self._levels is not None, "only work with levels is placed by level"
        assert self._search is not None, "the search begins before pods are placed"
        numbers = {role.name: number for number, role in enumerate(self._workload.roles)}
        present, found = self._state.pods.get(self._workload.name, {}), []
        kept = {} if self._has_pooled else self.kept
        for followers in self._levels.followers:
            number = numbers.get(followers.leader, -1)
            if number < 0 or pod_name(self._workload.roles[number], 0) in present:
                continue
            role = self._workload.roles[number]
            first = role.count
            names = [f"{followers.leader}-{at}" for at in range(first, first + followers.pods)]
            for name in names:
                if name in kept and kept[name].node in self._working.nodes.row:
                    self._search.add_pod(number, name, self._working.nodes.row[kept[name].node])
            if left := tuple(name for name in names if name not in kept):
                request = followers.request or replace(role.request, neighbours=None)
                want = self._state.request_of(self._workload, Role(request))
                found.append(PodBatch(number, left, -1, want))
        return found

    def _still_needed(self, at: int) -> int:
        """The pods of one role that are needed and were not placed where they are nominated."""
        _, count, needed = self._needs[at]
        return max(0, needed - (count - len(self._missing[at])))

    def _place_by_level(self, wanted: list[tuple[int, int]], followers: Sequence[PodBatch] = ()) -> bool:
        """These numbers of pods, by role, in domains as their levels ask for; with room there for their followers."""
        assert self._search is not None, "only work with levels is placed by level"
        batches: list[PodBatch] = []
        owners: list[int] = []
        for at, pods in wanted:
            if pods:
                names, shape = self._missing[at][:pods], self._needs[at].shape
                found = self._search.batches(self._numbers[at], names, shape, self._want(at))
                batches += found
                owners += [at] * len(found)
        placed = self._search.place((*batches, *followers)) if batches or followers else []
        if placed is None:
            return False
        for batch, found_places in zip(followers, placed[len(batches) :], strict=True):
            for name, each in zip(batch.names, found_places, strict=True):
                self._placement.followers.append(FollowerPlace(name, each, batch.want))
        placed = placed[: len(batches)]
        for at, batch, found_places in zip(owners, batches, placed, strict=True):
            for name, each in zip(batch.names, found_places, strict=True):
                self._missing[at].remove(name)
                self._placement.starts.append(_start(self._workload, name, each))
        return True

    def _place_needed(self, at: int) -> bool:
        """The needed pods of one role, on any nodes."""
        needed = self._still_needed(at)
        if not needed:
            return True
        placed = place_pods(self._placer, self._payer, self._needs[at].shape, self._want(at), needed)
        self._start(at, placed or [])
        return placed is not None

    def _grow(self, most: int) -> None:
        """Elastic roles take more, within the limits, up to `most` pods."""
        full = len(self._placement.starts) + most
        if self._search is not None:
            return self._grow_by_level(full)
        for at, (shape, _, _) in enumerate(self._needs):
            want = self._want(at)
            left = min(len(self._missing[at]), full - len(self._placement.starts))
            # The charge of the next pod depends on its device.
            if want.charge_depends_on_device or self._working.queues.is_model_bounded[self._payer.queue]:
                while left and (placed := place_pods(self._placer, self._payer, shape, want, 1)):
                    self._start(at, placed)
                    left -= 1
                continue
            queue, is_non_preemptible, _ = self._payer
            count = times_within_limits(self._working, queue, charge_of(want), left, is_non_preemptible)
            placed = self._placer.place(shape, want, count) if count else []
            self._working.charge(queue, charge_of_placed(self._working, want, placed), is_non_preemptible)
            self._start(at, placed)

    def _grow_by_level(self, full: int) -> None:
        """Many pods at once while they fit into the domains of their parts, then fewer."""
        for at in range(len(self._needs)):
            pods = left = min(len(self._missing[at]), full - len(self._placement.starts))
            while pods and left:
                if self._place_by_level([(at, pods)]):
                    left -= pods
                    pods = min(pods, left)
                else:
                    pods //= 2

    def _grow_by_steps(self) -> None:
        """Sub-groups join as a whole or not at all; complete roles grow pod by pod."""
        roles = self._workload.roles
        present = self._state.pods.get(self._workload.name, ())
        counts = enumerate(pods_per_role(self._workload, present))
        incomplete = [number for number, up in counts if up < roles[number].count]
        at_of = {number: at for at, number in enumerate(incomplete)}
        failed: set[PodsByRole] = set()
        while True:
            up = [role.count for role in roles]
            for number, at in at_of.items():
                up[number] -= len(self._missing[at])
            steps = [tuple((at_of[number], pods) for number, pods in step) for step in ways_to_grow(self._workload, up)]
            step = next((each for each in steps if self._kind_of(each) not in failed), None)
            if step is None:
                return
            if not self._place_step(step):
                failed.add(self._kind_of(step))

    def _kind_of(self, step: PodsByRole) -> PodsByRole:
        """Steps that need the same. Room only shrinks, so where one failed all do."""
        return tuple(sorted((self._needs[at].shape, pods) for at, pods in step))

    def _place_step(self, step: PodsByRole) -> bool:
        if self._search is not None:
            return self._place_by_level(list(step))
        found: list[tuple[int, list[Placed]]] = []
        with self._working.trial() as attempt:
            for at, pods in step:
                shape, want = self._needs[at].shape, self._want(at)
                placed = place_pods(self._placer, self._payer, shape, want, pods)
                if placed is None:
                    return False
                found.append((at, placed))
            attempt.keep()
        for at, placed in found:
            self._start(at, placed)
        return True

    def _use_nominations(self) -> None:
        """Place each nominated pod exactly where it is nominated, once no other pod holds that."""
        for pod, nomination in sorted(self.kept.items()):
            at = next((at for at, names in enumerate(self._missing) if pod in names), None)
            if at is None or (self._workload.groups and not self._needs[at].needed):
                continue  # a sub-group starts completely or not at all
            want = self._want(at)
            if not self._is_in_domain(at, pod, nomination.node):
                continue
            with self._working.trial() as attempt:
                self._working.release(nomination, self._payer.queue, self._payer.is_non_preemptible)
                placed = self._placer.put_exactly(self._needs[at].shape, want, nomination)
                if placed is None:
                    continue
                if not self._payer.try_charge(self._working, charge_of_placed(self._working, want, [placed])):
                    continue
                attempt.keep()
            self._missing[at].remove(pod)
            self._placement.starts.append(_start(self._workload, pod, placed))
            if self._search is not None:
                self._search.add_pod(self._numbers[at], pod, self._working.nodes.row[placed.node])

    def _is_in_domain(self, at: int, pod: str, node: str) -> bool:
        """The node is still in the domains that the levels of the pod require."""
        if self._search is None:
            return True
        row = self._working.nodes.row.get(node)
        return row is not None and self._search.allows(self._numbers[at], pod, row)

    def _pool_nominations(self) -> None:
        for nomination in self.kept.values():
            self._working.release(nomination, self._payer.queue, self._payer.is_non_preemptible)
        self._placement.given_up.extend((self._workload.name, pod) for pod in sorted(self.kept))

    def _start(self, at: int, placed: list[Placed]) -> None:
        self._placement.starts.extend(_start(self._workload, self._missing[at].pop(0), each) for each in placed)

    def _want(self, at: int) -> Request:
        return self._state.backlog.shapes[self._needs[at].shape]


def _missing_pods(state: ClusterState, workload: Workload) -> list[list[str]]:
    """The names of missing pods, for each role that lacks any."""
    present = state.pods.get(workload.name, {})
    names = [[n for i in range(role.count) if (n := pod_name(role, i)) not in present] for role in workload.roles]
    return [each for each in names if each]


def _start(workload: Workload, pod: str, placed: Placed) -> Start:
    return Start(workload.name, pod, placed.node, placed.devices)


def _follows(want: Request) -> bool:
    """It must be near pods of another kind, so it cannot be placed first."""
    neighbours = want.neighbours
    return neighbours is not None and neighbours.near is not None and neighbours.near.mark not in neighbours.marks
