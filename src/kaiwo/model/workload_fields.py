"""The table of workload fields that users set: their names in the short form, as annotations and as flags.

Each setting is one attribute of `Workload`. The table feeds the submission form and its OpenAPI schema, the annotations
of manifests and of Kubernetes objects, the flags of `kaiwo submit` and `kaiwo run`, and the workload's detail in the
API. A new setting is an attribute of `Workload`, a row here, and an attribute of the API's `WorkloadDetail`. Queue,
user, type and priority are not here: their meaning depends on where they are written.
"""

import enum
from typing import NamedTuple

from kaiwo.model.network.constraint import STRATEGIES
from kaiwo.model.policy import STRATEGY_PLACEMENTS


class ValueKind(enum.Enum):
    """What people write as a setting's value. `manifests.values.setting_values` reads each kind."""

    BOOLEAN = enum.auto()
    DURATION = enum.auto()
    TIMESTAMP = enum.auto()
    NAME = enum.auto()
    COUNT = enum.auto()
    LEVEL = enum.auto()  # of a topology, or a node label
    STRATEGY = enum.auto()  # how pods are placed in the domains of a level
    NODE_STRATEGY = enum.auto()  # how nodes and devices are chosen
    BANDWIDTH = enum.auto()  # in MB/s


class WorkloadField(NamedTuple):
    name: str  # of the attribute of `Workload` and of the API's `WorkloadDetail`
    kind: ValueKind
    short: str  # in the short form
    annotation: str
    flag: str = ""  # empty: the command line has a flag of its own for it
    metavar: str = ""
    flag_letter: str = ""
    default: bool | int | str = 0
    help: str = ""


FIELDS = (
    WorkloadField("preemptible", ValueKind.BOOLEAN, "preemptible", "kaiwo.ai/preemptible", default=True,
                  help="May be stopped for other workloads. If false, it must fit its queue's quota."),
    WorkloadField("time_limit_s", ValueKind.DURATION, "time", "kaiwo.ai/time", "--time", "LENGTH", "-t",
                  help="Stop it after this long, such as 2h30m."),
    WorkloadField("estimate_s", ValueKind.DURATION, "estimate", "kaiwo.ai/estimate", "--estimate", "LENGTH",
                  help="Expected run time."),
    WorkloadField("preemption_delay_s", ValueKind.DURATION, "preemptionDelay", "kaiwo.ai/preemption-delay",
                  "--preemption-delay", "LENGTH", help="Wait this long before other workloads are stopped for it."),
    WorkloadField("restart_s", ValueKind.DURATION, "restartCost", "kaiwo.ai/restart-cost", "--restart-cost", "LENGTH",
                  help="How long it takes after a restart to get back to its last checkpoint."),
    WorkloadField("reservation", ValueKind.NAME, "reservation", "kaiwo.ai/reservation", "--reservation", "NAME",
                  default="", help="Run only on the GPUs of this pool or reservation."),
    WorkloadField("expires_s", ValueKind.TIMESTAMP, "expires", "kaiwo.ai/expires", "--expires", "WHEN",
                  help="Release its GPUs then, running or not: 2h from now, or 2026-01-31T18:00:00Z."),
    WorkloadField("topology", ValueKind.NAME, "topology", "kaiwo.ai/topology", "--topology", "NAME", default="",
                  help="Topology that the levels belong to (default: the first that has them)."),
    WorkloadField("required_level", ValueKind.LEVEL, "requiredLevel", "kaiwo.ai/required-level", "--required-level",
                  "LEVEL", default="", help="Run all pods in one domain of this level, such as leaf; else wait."),
    WorkloadField("preferred_level", ValueKind.LEVEL, "preferredLevel", "kaiwo.ai/preferred-level",
                  "--preferred-level", "LEVEL", default="",
                  help="Run all pods in one domain of this level if one has room, else in as few as possible."),
    WorkloadField("placement_strategy", ValueKind.STRATEGY, "placementStrategy", "kaiwo.ai/placement-strategy",
                  "--placement-strategy", "STRATEGY", default="",
                  help=f"Where pods go on these levels: {', '.join(STRATEGIES)}."),
    WorkloadField("segment_size", ValueKind.COUNT, "segmentSize", "kaiwo.ai/segment-size", "--segment-size", "N",
                  help="This many pods, by index, share one domain of the segment level."),
    WorkloadField("segment_level", ValueKind.LEVEL, "segmentLevel", "kaiwo.ai/segment-level", "--segment-level",
                  "LEVEL", default="", help="Level of which each segment of pods uses one domain."),
    WorkloadField("roles_level", ValueKind.LEVEL, "rolesLevel", "kaiwo.ai/roles-level", "--roles-level", "LEVEL",
                  default="",
                  help="Run all roles in one domain of this level; the other levels then hold for each role."),
    WorkloadField("rank_order", ValueKind.BOOLEAN, "rankOrder", "kaiwo.ai/rank-order", "--rank-order", default=False,
                  help="Number its pods by their places, so that neighbouring ranks are near each other."),
    WorkloadField("strategy", ValueKind.NODE_STRATEGY, "strategy", "kaiwo.ai/strategy", "--strategy", "STRATEGY",
                  default="", help=f"How its nodes and GPUs are chosen: {', '.join(STRATEGY_PLACEMENTS)}."),
    WorkloadField("bandwidth_mb_s", ValueKind.BANDWIDTH, "bandwidth", "kaiwo.ai/bandwidth", "--bandwidth", "RATE",
                  help="Bandwidth that each pod needs to the others, such as 200Gbps or 25GB/s; else wait."),
)  # fmt: skip
