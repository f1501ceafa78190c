"""The scheduler's policy, as one frozen value. Every cycle's journal entry carries it."""

import msgspec

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import ShareRule
from kaiwo.model.network.constraint import CONSOLIDATED, STRATEGIES, plugin_strategy

ACTIONS = ("allocate", "consolidate", "reclaim", "preempt", "stale-gangs")  # of a cycle
ADJUSTMENTS = ("off", "advise", "act")  # nothing; tell people; change the next start of recurring work
IDLE_ACTIONS = ("off", "warn", "shrink", "release")  # of running work whose GPUs do nothing: see runtime.advising
SLOW_NODES = ("ignore", "avoid", "leave")  # no rule; no new work there; and running work that measured it moves
PACK, SPREAD = "pack", "spread"  # how nodes are chosen
# The same where a queue names an allocation strategy: those that even out devices even out nodes, too.
STRATEGY_PLACEMENTS = {
    "fragmentation-aware": PACK, "best-fit": PACK, "first-fit": PACK,
    "worst-fit": SPREAD, "round-robin": SPREAD, "load-balanced": SPREAD,
}  # fmt: skip
VICTIM_ORDERS = ("lost-work", "youngest")


def hours_of_day(text: str) -> tuple[int, int]:
    """`22:00-06:00` as seconds of the day, from and until."""
    times = [each.strip().split(":") for each in text.split("-")]
    is_well_formed = len(times) == 2 and all(len(each) == 2 and all(map(str.isdecimal, each)) for each in times)
    found = [int(hour) * 3600 + int(minute) * 60 for hour, minute in times] if is_well_formed else []
    if not found or max(found) > 86_400 or any(int(minute) > 59 for _, minute in times) or found[0] == found[1]:
        raise ConfigError(f"the policy's move_hours have '{text}'; write hours of the day in UTC, such as 22:00-06:00")
    return found[0], found[1]


class TopologyWeights(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """How much each term counts when a domain of the network is chosen: see decide.placement.domain_choice."""

    availability: int = 40
    alignment: int = 30
    utilisation: int = 20
    performance: int = 10

    def __post_init__(self) -> None:
        weights = (self.availability, self.alignment, self.utilisation, self.performance)
        if min(weights) < 0 or not sum(weights):
            raise ConfigError("the policy's topology_weights must be 0 or more, and one of them above 0")


class Policy(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    steps: int = 20_000  # a cycle's budget: pods placed or workloads tried; never a time
    gpu_strategy: str = "fragmentation-aware"  # name of the `allocation` plugin that chooses devices on a node
    placement: str = "pack"  # pack | spread: fill one node before the next, or one pod per node in turn
    score_weights: dict[str, int] = {}  # by plugin name (default: the plugin's own weight)
    disabled_plugins: tuple[str, ...] = ()
    actions: tuple[str, ...] = ("allocate", "reclaim", "preempt", "stale-gangs")  # in this order; see ACTIONS
    victim_order: str = "lost-work"  # among equal priorities: see VICTIM_ORDERS
    age_boost_milli: int = 0  # thousandths of a priority point per hour of waiting; affects only the order
    size_boost_milli: int = 0  # the same per requested GPU; negative: small workloads first
    stale_gang_grace_s: int = 60  # how long a gang may run below its minimum
    promises: int = 8  # how many large workloads have a planned start at once; 0: no backfill
    large_permille: int = 100  # large: requests this part of the cluster's GPUs, and at least two
    hold_off_s: int = 600  # preempted work may not preempt others for this long, so that two do not take turns
    past_use_half_life_s: int = 0  # after this time, usage counts half against a queue; 0: it never counts
    past_use_strength_milli: int = 1000  # how much past usage changes a queue's weight: see queues.past_usage
    keep_lost_place_s: int = 300  # how long the place of a lost gang member is kept for its replacement; 0: never
    share_with: ShareRule = ()  # with whom all work shares a GPU, whatever else it and its queue ask for
    max_restart_cost_s: int = 3600  # what a workload says about its restart cost counts for no more than this
    topology_strategy: str = CONSOLIDATED  # of work that states levels but no strategy: see STRATEGIES
    topology_weights: TopologyWeights = TopologyWeights()
    spare_ending_s: int = 0  # running work that is expected to end within this time is not stopped for others
    domain_queues: dict[str, tuple[str, ...]] = {}  # by domain: the queues whose work with levels may use it; else all
    replica_strategy: str = "live-room"  # name of the plugin that divides GPUs over pods
    max_wait_s: int = 86_400  # work that waited this long is overdue: a place is kept free for it; 0: never
    overdue_run_s: int = 3600  # overdue work that has started is not stopped for others for this long
    predicted_ahead_s: int = 0  # free GPUs are kept for urgent demand that is expected within this time; 0: never
    predicted_priority: int = 0  # from which on work is urgent
    predicted_permille: int = 250  # the most of the cluster's GPUs that are kept so
    slow_nodes: str = "avoid"  # what is done about nodes that stay slow beside the others: see SLOW_NODES
    slow_below_percent: int = 50  # slow: below this part of the usual speed
    slow_for_s: int = 600  # for this long
    move_hours: tuple[str, ...] = ()  # when defragmentation may begin moves, in UTC, such as 22:00-06:00; none: always
    moves_at_once: int = 4  # the most that it makes at once
    moves_per_hour: int = 120  # the most that it begins within an hour
    adjustment: str = "advise"  # requests that do not fit what the same work used before: see ADJUSTMENTS
    adjust_headroom_percent: int = 20  # beyond the measured peak; memory has more: see advise.right_size
    adjust_after_runs: int = 5  # that ended well, of the same work
    idle_action: str = "warn"  # see IDLE_ACTIONS
    idle_after_s: int = 3600  # without any use of its GPUs; what follows the warning comes after as long again

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"the policy's steps are {self.steps}; give a cycle at least 1")
        if self.promises < 0 or not 0 <= self.large_permille <= 1000:
            raise ConfigError("the policy's promises must be 0 or more, and large_permille from 0 to 1000")
        if self.max_wait_s < 0 or self.overdue_run_s < 0:
            raise ConfigError("the policy's max_wait_s and overdue_run_s must be 0 or more")
        if self.moves_at_once < 1 or self.moves_per_hour < 1:
            raise ConfigError("the policy's moves_at_once and moves_per_hour must be 1 or more")
        for hours in self.move_hours:
            hours_of_day(hours)
        if not 1 <= self.slow_below_percent <= 100 or self.slow_for_s < 0:
            raise ConfigError("the policy's slow_below_percent must be from 1 to 100, and slow_for_s 0 or more")
        if not 0 <= self.adjust_headroom_percent <= 1000 or self.adjust_after_runs < 2 or self.idle_after_s < 60:
            raise ConfigError(
                "the policy's adjust_headroom_percent must be from 0 to 1000, adjust_after_runs 2 or more, and "
                "idle_after_s 60 or more"
            )
        for name, given, known in (
            ("actions", self.actions, ACTIONS),
            ("victim_order", (self.victim_order,), VICTIM_ORDERS),
            ("slow_nodes", (self.slow_nodes,), SLOW_NODES),
            ("adjustment", (self.adjustment,), ADJUSTMENTS),
            ("idle_action", (self.idle_action,), IDLE_ACTIONS),
            ("topology_strategy", (self.topology_strategy,), STRATEGIES),
        ):
            unknown = [each for each in given if each not in known and not plugin_strategy(each)]
            if unknown:
                raise ConfigError(f"unknown '{unknown[0]}' in the policy's {name}; choose from: {', '.join(known)}")


DEFAULT_POLICY = Policy()
