"""The scale signal: nodes that are needed, and nodes that may go."""

import msgspec


class HourNeedView(msgspec.Struct, frozen=True):
    """One of the coming hours."""

    begins_s: int
    expected_gpus: int  # mean demand
    high_gpus: int  # demand seldom exceeds this
    add_nodes: int  # nodes to add so that this much could run


class ModelNeedView(msgspec.Struct, frozen=True):
    """All nodes whose GPUs are of one model."""

    model: str
    nodes: int  # that take work
    gpus: int
    gpus_per_node: int
    held_gpus: int
    waiting_gpus: int  # without what the limits of queues forbid
    add_nodes: int  # nodes to add now
    add_nodes_later: int  # the most in any of the hours
    add_nodes_at_s: int  # when nodes are missing first; 0: never within these hours
    hours_seen: int  # hours of demand that the forecast rests on
    hours: list[HourNeedView]  # the one that runs first, as far as they are known
    may_go: list[str]  # empty nodes that are not needed in any of 24 hours; none before all of them are known


class ScaleView(msgspec.Struct, frozen=True):
    """What is needed of each GPU model, and what may go."""

    as_of_s: int
    models: list[ModelNeedView]
