"""The one table of the workload settings that people write.

Each setting is one attribute of `Workload`, under its name in the short form, as an annotation and as a flag.
The table feeds the submission form and its OpenAPI schema, the annotations of manifests and of Kubernetes objects, the
flags of `kaiwo submit` and `kaiwo run`, and the workload's detail in the API. A new setting is an attribute of
`Workload`, a line here, and an attribute of the API's `WorkloadDetail`.
Queue, user, type and priority are not here: what counts for them depends on where they are written.
"""

import enum
from typing import NamedTuple


class ValueKind(enum.Enum):
    """What people write as the value of a setting. `manifests.values.setting_values` reads each kind."""

    BOOLEAN = enum.auto()
    DURATION = enum.auto()
    TIMESTAMP = enum.auto()
    NAME = enum.auto()


class WorkloadField(NamedTuple):
    """One setting of a workload."""

    name: str  # of the attribute of `Workload` and of the API's `WorkloadDetail`
    kind: ValueKind
    short: str  # in the short form
    annotation: str
    help: str
    flag: str = ""  # empty: the command line has a flag of its own for it
    metavar: str = ""
    flag_letter: str = ""
    default: bool | int | str = 0


FIELDS = (
    WorkloadField(
        "preemptible",
        ValueKind.BOOLEAN,
        short="preemptible",
        annotation="kaiwo.ai/preemptible",
        help="May be stopped for other workloads. If false, it must fit its queue's quota.",
        default=True,
    ),
    WorkloadField(
        "time_limit_s",
        ValueKind.DURATION,
        short="time",
        annotation="kaiwo.ai/time",
        flag="--time",
        flag_letter="-t",
        metavar="LENGTH",
        help="Stop it after this long, such as 2h30m.",
    ),
    WorkloadField(
        "estimate_s",
        ValueKind.DURATION,
        short="estimate",
        annotation="kaiwo.ai/estimate",
        flag="--estimate",
        metavar="LENGTH",
        help="Expected run time.",
    ),
    WorkloadField(
        "preemption_delay_s",
        ValueKind.DURATION,
        short="preemptionDelay",
        annotation="kaiwo.ai/preemption-delay",
        flag="--preemption-delay",
        metavar="LENGTH",
        help="Wait this long before other workloads are stopped for it.",
    ),
    WorkloadField(
        "restart_s",
        ValueKind.DURATION,
        short="restartCost",
        annotation="kaiwo.ai/restart-cost",
        flag="--restart-cost",
        metavar="LENGTH",
        help="How long it takes after a restart to get back to its last checkpoint.",
    ),
    WorkloadField(
        "reservation",
        ValueKind.NAME,
        short="reservation",
        annotation="kaiwo.ai/reservation",
        flag="--reservation",
        metavar="NAME",
        help="Run only on the GPUs of this pool or reservation.",
        default="",
    ),
    WorkloadField(
        "expires_s",
        ValueKind.TIMESTAMP,
        short="expires",
        annotation="kaiwo.ai/expires",
        flag="--expires",
        metavar="WHEN",
        help="Release its GPUs then, running or not: 2h from now, or 2026-01-31T18:00:00Z.",
    ),
)
