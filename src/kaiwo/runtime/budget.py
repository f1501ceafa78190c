"""How many steps a cycle may take: a count for `decide`, tuned here from measured time."""

from msgspec.structs import replace

from kaiwo.model.policy import Policy

TARGET_US = 300_000  # no cycle over 400 ms, with room for a bad moment
GROW_BELOW_US = 250_000  # to this by proportion: the next steps may be dearer than the last
FEWEST = 1_000  # fewer would only pay a cycle's fixed cost more often
FIRST = 2_000  # of the first cycle, before anything is known


class StepBudget:
    """The policy's steps at most; fewer while steps are slow."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, min(most, FIRST)

    def apply(self, policy: Policy) -> Policy:
        """The policy with this cycle's steps."""
        return policy if self._now == policy.steps else replace(policy, steps=self._now)

    def learn(self, steps: int, took_us: int) -> None:
        """Shrink at once when a cycle was too long; when it used its budget and was short, grow, at most to twice."""
        if took_us > TARGET_US and steps:
            self._now = max(FEWEST, min(self._now, steps * TARGET_US // took_us))
        elif steps >= self._now and took_us < GROW_BELOW_US:
            self._now = min(self._most, self._now * 2, self._now * GROW_BELOW_US // max(1, took_us))
