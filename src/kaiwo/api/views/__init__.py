"""The JSON types of the API, from which the OpenAPI document and the page's types are made.

The CLI's `-o json` and the page show exactly these. Integers only: milli-GPU, milli-CPU, MiB, seconds.
"""

from kaiwo.api.views.answers import LoginView, Outcome, Page, Problem, StreamDelta, StreamReset
from kaiwo.api.views.cluster import ClusterView, CycleView, StatusView, Usage, VersionView
from kaiwo.api.views.nodes import AgentView, GpuView, MeasuredView, NodeView, ReasonForm, TenantView
from kaiwo.api.views.partitions import PartitionStepView, PartitionsView, PlanNodeView, PlanView, PolicyForm, TakenView
from kaiwo.api.views.queues import (
    AmountView,
    ModelAmountView,
    QueueView,
    ShareView,
    TermsView,
    TurnView,
    WaitingWorkloadView,
)
from kaiwo.api.views.workloads import (
    AttemptsView,
    AttemptView,
    ChangeView,
    ConsoleView,
    ObstacleView,
    PodView,
    WhyView,
    WorkloadDetail,
    WorkloadView,
)

__all__ = [
    "AgentView",
    "AmountView",
    "AttemptView",
    "AttemptsView",
    "ChangeView",
    "ClusterView",
    "ConsoleView",
    "CycleView",
    "GpuView",
    "LoginView",
    "MeasuredView",
    "ModelAmountView",
    "NodeView",
    "ObstacleView",
    "Outcome",
    "Page",
    "PartitionStepView",
    "PartitionsView",
    "PlanNodeView",
    "PlanView",
    "PodView",
    "PolicyForm",
    "Problem",
    "QueueView",
    "ReasonForm",
    "ShareView",
    "StatusView",
    "StreamDelta",
    "StreamReset",
    "TakenView",
    "TenantView",
    "TermsView",
    "TurnView",
    "Usage",
    "VersionView",
    "WaitingWorkloadView",
    "WhyView",
    "WorkloadDetail",
    "WorkloadView",
]
