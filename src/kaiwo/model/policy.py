"""How the scheduler weighs things. One frozen value; every cycle's journal entry carries it."""

import msgspec

from kaiwo.model.errors import ConfigError

ACTIONS = ("allocate", "consolidate", "reclaim", "preempt", "stale-gangs")  # what a cycle does, in the policy's order
VICTIM_ORDERS = ("lost-work", "youngest")


class Policy(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The defaults suit most clusters."""

    steps: int = 20_000  # the cycle's budget: pods placed or workloads tried; never a clock
    gpu_strategy: str = "fragmentation-aware"  # which device of a node: an `allocation` plugin by name
    placement: str = "pack"  # pack | spread: fill a node before the next, or one pod a turn
    score_weights: dict[str, int] = {}  # by plugin name; a plugin that is not named keeps its own
    disabled_plugins: tuple[str, ...] = ()
    actions: tuple[str, ...] = ("allocate", "reclaim", "preempt", "stale-gangs")  # see ACTIONS
    victim_order: str = "lost-work"  # among equal priorities: lost-work | youngest
    age_boost_milli: int = 0  # priority points, in thousandths, that an hour of waiting is worth; only for the order
    size_boost_milli: int = 0  # and that each GPU of a workload is worth; below 0: small ones first
    stale_gang_grace_s: int = 60  # so long may a gang run below its minimum
    promises: int = 8  # so many large workloads at the head of the order have a planned start; 0: no backfill
    large_permille: int = 100  # large is what asks for this part of the cluster's GPUs, and for two at least
    hold_off_s: int = 600  # who had to go for others makes nobody else go for so long: so taking turns comes to an end
    past_use_half_life_s: int = 0  # after so long, use counts half against a queue; 0: past use does not count
    past_use_strength_milli: int = 1000  # how much it bends a queue's weight: see queues.usage

    def __post_init__(self) -> None:
        """A cycle without a step would never end a search."""
        if self.steps < 1:
            raise ConfigError(f"the policy's steps are {self.steps}; give a cycle at least 1")
        if self.promises < 0 or not 0 <= self.large_permille <= 1000:
            raise ConfigError("the policy's promises are 0 or more, and large_permille is from 0 to 1000")
        for name, given, known in (
            ("actions", self.actions, ACTIONS),
            ("victim_order", (self.victim_order,), VICTIM_ORDERS),
        ):
            unknown = [each for each in given if each not in known]
            if unknown:
                raise ConfigError(f"the policy's {name} know no '{unknown[0]}'; choose from: {', '.join(known)}")


DEFAULT_POLICY = Policy()
