"""How the scheduler weighs things. One frozen value; every cycle's journal entry carries it."""

import msgspec


class Policy(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The defaults suit most clusters."""

    steps: int = 20_000  # the cycle's budget: pods placed or workloads tried; never a clock
    gpu_strategy: str = "fragmentation-aware"  # which device of a node: an `allocation` plugin by name
    placement: str = "pack"  # pack | spread: fill a node before the next, or one pod a turn
    score_weights: dict[str, int] = {}  # by plugin name; a plugin that is not named keeps its own
    disabled_plugins: tuple[str, ...] = ()


DEFAULT_POLICY = Policy()
