"""What to do about waiting work, for a cluster whose work comes and goes with kubectl.

In:    a proposal or an obstacle.   Out: the same advice with manifests and kubectl: `kaiwo submit` is refused there.
"""

from collections.abc import Callable

from msgspec.structs import replace

from kaiwo.explain.obstacle_sentences import before_start, remedy
from kaiwo.explain.possible_changes import Kind, split_bound
from kaiwo.explain.why import Proposal
from kaiwo.model.obstacle import Obstacle, Reason

REPLACE = "kubectl replace --force -f MANIFEST.yaml"  # a pod is not changed in place: it is deleted and made anew


def propose_in_kubernetes(proposal: Proposal) -> Proposal:
    """One change."""
    sentence, command = _WORDS[Kind(proposal.kind)](proposal)
    return replace(proposal, sentence=sentence, command=command)


def remedy_in_kubernetes(obstacle: Obstacle) -> str:
    """What would remove one obstacle."""
    return _REMEDIES[obstacle.reason](obstacle) if obstacle.reason in _REMEDIES else remedy(obstacle)


def _in_manifest(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: change its manifest, and make it anew", REPLACE


def _model(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: write kaiwo.ai/gpu-models: {proposal.subject} into its manifest", REPLACE


def _queue(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: write kaiwo.ai/queue: {proposal.subject} into its manifest", REPLACE


def _quota(proposal: Proposal) -> tuple[str, str]:
    return proposal.sentence, f"kubectl edit kaiwoqueue {split_bound(proposal.subject)[0]}"


def _stop(proposal: Proposal) -> tuple[str, str]:
    return f"{proposal.sentence}: delete its pods, or the object that made them, with kubectl", ""


_WORDS: dict[Kind, Callable[[Proposal], tuple[str, str]]] = {
    Kind.SMALLER_SIZE: _in_manifest,
    Kind.LOOSER_LEVEL: _in_manifest,
    Kind.OTHER_MODEL: _model,
    Kind.OTHER_QUEUE: _queue,
    Kind.QUOTA: _quota,
    Kind.STOP: _stop,
}

_REMEDIES: dict[Reason, Callable[[Obstacle], str]] = {
    Reason.NO_QUEUE: lambda o: (
        "create it (kubectl apply -f QUEUE.yaml), or name another one with kaiwo.ai/queue (kubectl get kaiwoqueues)"
    ),
    Reason.QUEUE_NOT_LEAF: lambda o: f"name one of the queues below '{o.subject}' with kaiwo.ai/queue",
    Reason.QUEUE_QUOTA: lambda o: 'let it be preempted (kaiwo.ai/preemptible: "true"), or raise the quota of its queue',
    Reason.NODE_NOT_READY: lambda o: "look at kubectl describe node for the reason",
    Reason.NODE_CORDONED: lambda o: "uncordon one: kubectl uncordon NODE",
    Reason.NODE_AVOIDED: lambda o: "mend the node, then delete the pod; its controller makes a new one",
    Reason.EXPIRED: lambda o: "make it anew with a later kaiwo.ai/expires, or without one",
    Reason.PROMISED: lambda o: (
        f"say with kaiwo.ai/time how long it may run if it takes no longer, or wait until {o.subject} has started"
    ),
    Reason.RESERVED: lambda o: "wait until the reservation is over, or ask who has it (kubectl get kaiworeservations)",
    Reason.RESERVATION: lambda o: (
        f"{before_start(o)}name another one or none with kaiwo.ai/reservation (kubectl get kaiworeservations)"
    ),
}
