"""Routes about partition modes: what is planned, what changes, and the policy."""

from collections.abc import Sequence

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body, read_fields
from kaiwo.api.presenters.partitioning_view import partitions_view
from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.partitions import PartitionsView, PolicyForm
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.runtime.partitioning.saved_state import POLICIES


async def get_partitions(call: EndpointCall) -> PartitionsView:
    return partitions_view(call.context.partitions)


async def set_policy(call: EndpointCall) -> Outcome:
    policy = read_fields(call.body, "policy").get("policy")
    if policy not in POLICIES:
        raise invalid(f"policy must be one of {', '.join(POLICIES)}", "policy")
    before = call.context.partitions.policy
    await call.context.partitions.set_policy(policy)
    call.trail.changed("partition-policy", before, policy)
    return Outcome([f"the partition policy is {policy}"])


async def put_plans(call: EndpointCall, plans: Sequence[PartitioningPlan], dry_run: bool) -> list[str]:
    """The lines of `kaiwo apply` about PartitioningPlans; a dry run says what would happen to each node."""
    partitions = call.context.partitions
    if not plans:
        return []
    if not dry_run:
        before = dict(partitions.plans)
        words = await partitions.put_plans(plans)
        for plan in plans:
            call.trail.changed(f"partitioning-plan/{plan.name}", before.get(plan.name), plan, "put-partitioning-plan")
        return [f"PartitioningPlan {plan.name} {word}" for plan, word in zip(plans, words, strict=True)]
    found = await partitions.preview(plans)
    lines = [f"PartitioningPlan {plan.name} would be saved (dry run)" for plan in plans]
    return lines + [f"node {each.node}: {each.profile}: {each.reason} (dry run)" for each in found]


async def drop_plans(call: EndpointCall, plans: Sequence[PartitioningPlan]) -> list[str]:
    partitions = call.context.partitions
    before = dict(partitions.plans)
    there = [await partitions.drop_plan(plan.name) for plan in plans]
    for plan in plans:
        name = f"partitioning-plan/{plan.name}"
        call.trail.changed(name, before.get(plan.name), action="remove-partitioning-plan")
    words = ("not found", "deleted; the nodes stay as they are")
    return [f"PartitioningPlan {plan.name} {words[found]}" for plan, found in zip(plans, there, strict=True)]


ROUTES = (
    Route("GET", "/partitions", "Partition modes: the plan, and what is under way.", get_partitions, PartitionsView),
    Route("POST", "/partitions/policy", "Let modes change, only plan, or neither.", set_policy, Outcome,
          body=Body((JSON,), PolicyForm)),
)  # fmt: skip
