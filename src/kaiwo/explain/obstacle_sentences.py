"""Turn obstacles into sentences and remedies: the same text in the CLI, on the page, in Events and in conditions.

A new code needs one row in the table at the end.
"""

from collections.abc import Callable
from typing import NamedTuple

from kaiwo.explain import level_sentences, reclaim_sentences, shortage_sentences
from kaiwo.explain.change_sentences import short_name
from kaiwo.explain.shortage_sentences import have_words, need_words
from kaiwo.model.amounts import amount, count, rate, rounded_duration
from kaiwo.model.obstacle import (
    BandwidthShort,
    ClosedDomains,
    ModelsPresent,
    ModeMissing,
    MpsOnAmd,
    NeverReclaims,
    NodesExcluded,
    NoSuchMode,
    Obstacle,
    QueueBound,
    QueueTakes,
    Reason,
    ReservationProblem,
    ReservationUnusable,
    ReservedBy,
    RetryReason,
    RunTime,
    RunTimeSource,
    TopologyLabelMissing,
    VendorMissing,
)
from kaiwo.model.reservation import NEVER_S, clock_words, times_words


def sentence(obstacle: Obstacle) -> str:
    text = _TEXTS[obstacle.reason].sentence(obstacle)
    return f"{text} ({obstacle.detail})" if obstacle.detail else text


def remedy(obstacle: Obstacle) -> str:
    return _TEXTS[obstacle.reason].remedy(obstacle)


def remedy_in_kubernetes(obstacle: Obstacle) -> str:
    """The same for a cluster whose work is managed with kubectl: `kaiwo submit` is refused there."""
    text = _TEXTS[obstacle.reason]
    return (text.kubectl_remedy or text.remedy)(obstacle)


def _nodes(o: Obstacle, one: str = "", many: str = "") -> str:
    """`7 of 8 nodes` and the verb that agrees with them."""
    if not isinstance(o.facts, NodesExcluded):
        return f"some nodes{many}"
    return f"{o.facts.excluded} of {o.facts.total} nodes{one if o.facts.excluded == 1 else many}"


def _no_match(o: Obstacle) -> str:
    if isinstance(o.facts, VendorMissing):
        vendor, nodes = o.facts.vendor, amount(o.facts.nodes, "nodes")
        return f"it asks for {vendor}.com/gpu, but none of the {nodes} has a GPU from {vendor}"
    return f"{_nodes(o, ' does', ' do')} not match its node selector or affinity"


def _uneven(o: Obstacle) -> str:
    if isinstance(o.facts, TopologyLabelMissing):
        return f"its pods must be spread over the label {o.facts.label}, but no node has that label"
    return f"on {_nodes(o)} its pods would be spread too unevenly ({o.subject})"


def _too_slow(o: Obstacle) -> str:
    need = rate(o.facts.need_mb_s) if isinstance(o.facts, BandwidthShort) else "bandwidth"
    if isinstance(o.facts, BandwidthShort) and 0 < o.facts.port_mb_s < o.facts.need_mb_s:
        return f"each of its pods needs {need}, and the ports of a node carry {rate(o.facts.port_mb_s)} at most"
    if o.have >= o.need:
        return f"its {o.need} pods would fit, but no way was found to give each of them {need} to the others"
    return f"its {o.need} pods need {need} each to the others, and the links have that much left for only {o.have}"


def _closed_domains(o: Obstacle) -> str:
    if not isinstance(o.facts, ClosedDomains):
        return "some nodes are in domains that are closed to its queue and namespace"
    facts = o.facts
    names = ", ".join(facts.domains) + (f" and {count(facts.more, 'other')}" if facts.more else "")
    nodes = f"{facts.excluded} of {facts.total} nodes {'is' if facts.excluded == 1 else 'are'}"
    return f"{nodes} in domains that are closed to its queue and namespace ({names})"


def _no_model(o: Obstacle) -> str:
    has = f"; the cluster has {', '.join(o.facts.models) or 'no GPUs'}" if isinstance(o.facts, ModelsPresent) else ""
    return f"no node has {o.subject}{has}"


def _weak_isolation(o: Obstacle) -> str:
    if isinstance(o.facts, MpsOnAmd):
        return 'it asks for "mps" isolation, which AMD GPUs do not support, and the cluster has no other GPUs'
    return f"{_nodes(o)} cannot isolate a share of a GPU as it asks"


def _mode_missing(o: Obstacle) -> str:
    mode = f"{o.subject} mode"
    if isinstance(o.facts, NoSuchMode):
        has = "; ".join(f"{each.model} supports {', '.join(each.modes) or 'no modes'}" for each in o.facts.supported)
        return f"no GPU in this cluster supports {mode}: {has}"
    node, changing = (o.facts.node, o.facts.changing) if isinstance(o.facts, ModeMissing) else ("", 0)
    on_the_way = f"; {amount(changing, 'gpus')} {'is' if changing == 1 else 'are'} changing to it"
    if node:
        more = on_the_way if changing else "; its other GPUs could change to it"
        return f"it needs {need_words(o)} in {mode} on one node, but {node} has {have_words(o)} in that mode now{more}"
    return (
        f"no GPU is in {mode} yet{on_the_way}" if changing else f"no GPU is in {mode}, but {have_words(o)} could change"
    )


def _mode_remedy(o: Obstacle) -> str:
    match o.facts:
        case NoSuchMode():
            return "ask for a mode that the GPUs support; waiting does not help"
        case ModeMissing(changing=changing) if changing:
            return "wait for that change (kaiwo partitions shows it)"
        case ModeMissing(node) if node:
            less = f", or ask for {shortage_sentences.or_less(o)}" if o.have else ""
            return f"let GPUs change their mode (kaiwo partitions shows the plan){less}"
    return "let idle GPUs change their mode (kaiwo partitions shows the plan), or ask for what there is (kaiwo gpus)"


def _model(o: Obstacle) -> str:
    """The GPU model whose limit or quota it is."""
    return f"{o.facts.model} " if isinstance(o.facts, QueueBound) and o.facts.model else ""


def _not_taken(o: Obstacle) -> str:
    """`queue 'lab' takes work of the users ada and bob only, and its user is unknown`."""
    if not isinstance(o.facts, QueueTakes):
        return f"queue '{o.subject}' does not take its work"
    facts = o.facts
    names = ", ".join(facts.listed) + (f" and {facts.more} more" if facts.more else "")
    one, many = ("namespace", "namespaces") if facts.field == "namespaces" else ("user", "users")
    whose = f"it is of the {one} {facts.whose}" if facts.whose else "its user is unknown"
    return f"queue '{o.subject}' takes work of the {many if len(facts.listed) > 1 else one} {names} only, and {whose}"


def _not_taken_remedy(o: Obstacle) -> str:
    return f"submit it to a queue that takes it, or ask who administers '{o.subject}' to list {_who(o)}"


def _not_taken_kubectl_remedy(o: Obstacle) -> str:
    remedy = f"name a queue that takes it with kaiwo.ai/queue, or ask who administers '{o.subject}' to list {_who(o)}"
    is_unknown = isinstance(o.facts, QueueTakes) and not o.facts.whose
    return (
        f"create it again while the webhooks answer, so that its user is known; or {remedy}" if is_unknown else remedy
    )


def _who(o: Obstacle) -> str:
    return o.facts.whose if isinstance(o.facts, QueueTakes) and o.facts.whose else "its user"


def _limit_remedy(o: Obstacle) -> str:
    more = f"raise the limit by {amount(o.need - o.have, o.unit)}"
    if not isinstance(o.facts, QueueBound) or o.facts.bound >= o.need:
        return f"{more}, or wait for work in the queue to end"
    return f"{more}; waiting {'helps only if it can use other models' if o.facts.model else 'does not help'}"


def _reserved(o: Obstacle) -> str:
    """`reservation 'night' keeps GPUs that it could use for queue lab until ...; 8 of them are free`."""
    text = f"reservation '{o.subject}' keeps {'nodes' if o.unit == 'nodes' else 'GPUs'} that it could use"
    if not isinstance(o.facts, ReservedBy):
        return text
    facts = o.facts
    text += f" for {facts.owner.words} {times_words(facts.start_s, facts.end_s)}"
    if facts.is_endless or facts.overruns:
        ends = "has no time limit" if facts.is_endless else "would still be running then"
        text += f", and this workload may not be preempted and {ends}"
    text += f"; they are not in {facts.mode} mode" if facts.mode else ""
    return text + (f"; {facts.free} of them {'is' if facts.free == 1 else 'are'} free" if facts.free else "")


def _unusable(o: Obstacle) -> str:
    named = f"it names reservation '{o.subject}', which"
    match o.facts:
        case ReservationUnusable(ReservationProblem.OTHER_OWNER, owner):
            return f"{named} is for {owner.words}"
        case ReservationUnusable(ReservationProblem.NOT_STARTED, _, start_s, end_s):
            return f"{named} is active {times_words(start_s, end_s)}"
        case ReservationUnusable(ReservationProblem.EMPTY):
            return f"{named} has no GPUs, so no nodes either"
        case ReservationUnusable():
            return f"{named} is over or never existed"
    return f"{named} it cannot use"


def _until_start(o: Obstacle) -> str:
    is_to_come = isinstance(o.facts, ReservationUnusable) and o.facts.problem is ReservationProblem.NOT_STARTED
    return "wait for it to start, or " if is_to_come else ""


def _promised(o: Obstacle) -> str:
    """It would fit, but would still run when a planned start needs the place."""
    is_known = 0 < o.need < NEVER_S
    run = f"it may run for {rounded_duration(o.need)}" if is_known else "its run time is unknown"
    why = f" ({_RUN_TIMES[o.facts.source]})" if isinstance(o.facts, RunTime) else ""
    return f"{short_name(o.subject)} is planned to start in its place in {rounded_duration(o.have)}, and {run}{why}"


def _promised_remedy(o: Obstacle) -> str:
    wait = f"wait until {short_name(o.subject)} has started"
    flag = "a --time" if o.facts else "an --estimate or a --time"
    return f"give {flag} below {rounded_duration(o.have)} if it takes no longer, or {wait}" if o.have else wait


_RUN_TIMES = {
    RunTimeSource.EARLIER_RUNS: "as long as earlier runs like it",
    RunTimeSource.TIME_LIMIT: "it may not be preempted, so only a time limit counts",
}


def _releasing(o: Obstacle) -> str:
    if o.subject:
        return f"{need_words(o)} of its last run {'is' if o.need == 1 else 'are'} still being stopped"
    return f"the space kept for {need_words(o)} of it is still held by work that is being evicted"


Text = Callable[[Obstacle], str]


def _always(text: str) -> Text:
    return lambda _: text


class ObstacleText(NamedTuple):
    sentence: Text
    remedy: Text
    kubectl_remedy: Text | None = None  # where work is managed with kubectl; None: the same


_WAIT_FOR_RETRY = _always("wait; it will be tried again automatically then, or sooner if work ends")
_LESS_OR_WAIT = _always("ask for less, or wait for work to end")

_TEXTS: dict[Reason, ObstacleText] = {
    Reason.HELD: ObstacleText(_always("it is held"), lambda o: f"release it: kaiwo release {o.subject}"),
    Reason.DEPENDENCY: ObstacleText(
        lambda o: f"it waits for {o.subject} to succeed",
        lambda o: f"wait for {o.subject}, or submit it without --after",
    ),
    Reason.DEPENDENCY_FAILED: ObstacleText(
        lambda o: f"{o.subject} had to succeed first, but did not",
        lambda o: f"requeue {o.subject}, or submit this workload without --after",
    ),
    Reason.ARRAY_SLOTS: ObstacleText(
        lambda o: f"its array runs at most {count(o.have, 'task')} at once, and that many are running",
        _always("wait for one of them to end"),
    ),
    Reason.NOT_BEFORE: ObstacleText(
        lambda o: (
            f"it will not be tried before {clock_words(o.need)}"
            + (f": {o.facts.why}" if isinstance(o.facts, RetryReason) else "")
        ),
        _always("wait; it will be tried again automatically"),
    ),
    Reason.NOT_PERMITTED: ObstacleText(
        lambda o: (
            f"plugin {o.subject} does not let it start before {clock_words(o.need)}"
            + (f": {o.facts.why}" if isinstance(o.facts, RetryReason) else "")
        ),
        lambda o: f"wait; it will be tried again automatically, and {o.subject} is asked again (kaiwo plugins)",
    ),
    Reason.NO_QUEUE: ObstacleText(
        lambda o: f"there is no queue '{o.subject}'",
        _always("create it with kaiwo apply, or submit to another queue (kaiwo queue lists them)"),
        _always(
            "create it (kubectl apply -f QUEUE.yaml), or name another one with kaiwo.ai/queue (kubectl get kaiwoqueues)"
        ),
    ),
    Reason.QUEUE_NOT_LEAF: ObstacleText(
        lambda o: f"queue '{o.subject}' has queues below it and takes no work itself",
        lambda o: f"submit to one of the queues below '{o.subject}'",
        lambda o: f"name one of the queues below '{o.subject}' with kaiwo.ai/queue",
    ),
    Reason.QUEUE_ACCESS: ObstacleText(_not_taken, _not_taken_remedy, _not_taken_kubectl_remedy),
    Reason.QUEUE_LIMIT: ObstacleText(
        lambda o: f"it needs {need_words(o)}, but queue '{o.subject}' has {have_words(o)} left of its {_model(o)}limit",
        _limit_remedy,
    ),
    Reason.QUEUE_QUOTA: ObstacleText(
        lambda o: (
            f"it may not be preempted and needs {need_words(o)}, "
            f"but queue '{o.subject}' has {have_words(o)} left of its {_model(o)}quota"
        ),
        lambda o: (
            "let it be preempted (submit it without --no-preempt), "
            f"or raise the quota by {amount(o.need - o.have, o.unit)}"
        ),
        _always('let it be preempted (kaiwo.ai/preemptible: "true"), or raise the quota of its queue'),
    ),
    Reason.NO_NODES: ObstacleText(_always("the cluster has no nodes"), _always("add a node")),
    Reason.NODE_NOT_READY: ObstacleText(
        lambda o: f"{_nodes(o, ' is', ' are')} not ready",
        _always("check the reason with kaiwo nodes"),
        _always("check the reason with kubectl describe node"),
    ),
    Reason.NODE_CORDONED: ObstacleText(
        lambda o: f"{_nodes(o, ' is', ' are')} cordoned",
        _always("uncordon one: kaiwo nodes uncordon NODE"),
        _always("uncordon one: kubectl uncordon NODE"),
    ),
    Reason.NODE_RULES: ObstacleText(
        _no_match,
        lambda o: (
            "ask for GPUs that the cluster has (kaiwo gpus lists them), or add a node with such GPUs"
            if isinstance(o.facts, VendorMissing)
            else "relax the node selector or affinity, or label a node"
        ),
    ),
    Reason.NODE_TAINTED: ObstacleText(
        lambda o: f"{_nodes(o, ' has', ' have')} taints that it does not tolerate",
        _always("add a toleration, or remove the taint"),
    ),
    Reason.NODE_AVOIDED: ObstacleText(
        lambda o: f"it failed to start on {_nodes(o, ' and avoids it', ' and avoids them')}",
        _always("repair the node, then requeue the workload"),
        _always("repair the node, then delete the pod; its controller creates a new one"),
    ),
    Reason.BANDWIDTH: ObstacleText(
        _too_slow,
        lambda o: (
            f"ask for {rate(o.facts.port_mb_s)} or less (--bandwidth); waiting does not help"
            if isinstance(o.facts, BandwidthShort) and 0 < o.facts.port_mb_s < o.facts.need_mb_s
            else "ask for less bandwidth (--bandwidth) or fewer pods, or wait: `kaiwo topology` shows who uses links"
        ),
        lambda o: (
            f"ask for {rate(o.facts.port_mb_s)} or less with kaiwo.ai/bandwidth; waiting does not help"
            if isinstance(o.facts, BandwidthShort) and 0 < o.facts.port_mb_s < o.facts.need_mb_s
            else "ask for less (kaiwo.ai/bandwidth) or fewer pods, or wait: `kaiwo topology` shows who uses links"
        ),
    ),
    Reason.DOMAIN_CLOSED: ObstacleText(
        _closed_domains,
        _always("use a queue or namespace that the topology's access rules admit; `kaiwo topology` lists the rules"),
    ),
    Reason.PODS_NOT_NEAR: ObstacleText(
        lambda o: f"{_nodes(o, ' has', ' have')} none of the pods nearby that its affinity requires ({o.subject})",
        _always("start those pods first, or make the affinity preferred, not required (podAffinity)"),
    ),
    Reason.PODS_TOO_NEAR: ObstacleText(
        lambda o: (
            f"{_nodes(o, ' is', ' are')} excluded by pod anti-affinity, its own or that of other pods ({o.subject})"
        ),
        _always(
            "wait for those pods to end, add a node, or make the anti-affinity preferred, not required"
            " (podAntiAffinity)"
        ),
    ),
    Reason.PODS_UNEVEN: ObstacleText(
        _uneven,
        lambda o: (
            "label the nodes, spread over a label that they have (topologyKey), or use ScheduleAnyway"
            if isinstance(o.facts, TopologyLabelMissing)
            else "make room where the fewest of these pods run, raise maxSkew, or use ScheduleAnyway"
        ),
    ),
    Reason.PORT_TAKEN: ObstacleText(
        lambda o: f"the host port that it asks for is in use on {_nodes(o)} ({o.subject})",
        _always("wait for the pod that uses it to end, add a node, or ask for another hostPort"),
    ),
    Reason.GPU_MODEL: ObstacleText(_no_model, _always("ask for a model that the cluster has, or for any model")),
    Reason.GPU_UNHEALTHY: ObstacleText(
        _always("every GPU that it could use is unhealthy"), _always("check the reason with kaiwo gpus")
    ),
    Reason.GPU_ISOLATION: ObstacleText(
        _weak_isolation,
        lambda o: (
            "ask for time-slicing, cu-mask or a partition; waiting does not help"
            if isinstance(o.facts, MpsOnAmd)
            else "ask for a weaker grade or any method, or for a partition or a whole GPU"
        ),
    ),
    Reason.MAY_NOT_SHARE: ObstacleText(
        shortage_sentences.may_not_share,
        shortage_sentences.share_with_more,
        shortage_sentences.share_with_more_in_kubernetes,
    ),
    Reason.SHARE_TOO_LARGE: ObstacleText(
        shortage_sentences.share_too_large, _always("ask for a smaller share; waiting does not help")
    ),
    Reason.PARTITION_MODE: ObstacleText(_mode_missing, _mode_remedy),
    Reason.NOT_ENOUGH_GPUS: ObstacleText(shortage_sentences.too_large, shortage_sentences.smaller),
    Reason.NOT_ENOUGH_GPU_MEMORY: ObstacleText(shortage_sentences.device_too_small, shortage_sentences.smaller),
    Reason.NOT_ENOUGH_FREE_GPUS: ObstacleText(shortage_sentences.not_free, shortage_sentences.less),
    Reason.NOT_ENOUGH_FREE_GPU_SHARE: ObstacleText(shortage_sentences.not_free_on_device, shortage_sentences.less),
    Reason.NOT_ENOUGH_FREE_GPU_MEMORY: ObstacleText(
        lambda o: shortage_sentences.not_free_on_device(o, " of GPU memory"), shortage_sentences.less
    ),
    Reason.NOT_ENOUGH_CPU: ObstacleText(shortage_sentences.not_free, shortage_sentences.less),
    Reason.NOT_ENOUGH_MEMORY: ObstacleText(
        lambda o: shortage_sentences.not_free(o, " of memory"), shortage_sentences.less
    ),
    Reason.NOT_ENOUGH_PODS: ObstacleText(shortage_sentences.no_pod_slots, shortage_sentences.fewer_pods),
    Reason.NOT_ENOUGH_EXTENDED: ObstacleText(shortage_sentences.extended_not_free, shortage_sentences.less_of_extended),
    Reason.GANG: ObstacleText(shortage_sentences.gang_does_not_fit, shortage_sentences.smaller_gang),
    Reason.LEVEL: ObstacleText(
        level_sentences.no_domain_with_room, level_sentences.looser_level, level_sentences.looser_level_in_kubernetes
    ),
    Reason.OVER_FAIR_SHARE: ObstacleText(
        reclaim_sentences.may_not_reclaim,
        lambda o: (
            "wait for work to end, or give the queue another reclaimStrategy"
            if isinstance(o.facts, NeverReclaims)
            else "wait for work to end, or raise the queue's quota or weight"
        ),
    ),
    Reason.NOT_ENOUGH_RECLAIMABLE: ObstacleText(reclaim_sentences.not_enough_reclaimable, _LESS_OR_WAIT),
    Reason.NO_WAY_TO_RECLAIM: ObstacleText(reclaim_sentences.no_victims_found, _LESS_OR_WAIT),
    Reason.PATIENT: ObstacleText(reclaim_sentences.preemption_delay, _WAIT_FOR_RETRY),
    Reason.HELD_OFF: ObstacleText(reclaim_sentences.preemption_cooldown, _WAIT_FOR_RETRY),
    Reason.NO_WAY_TO_PREEMPT: ObstacleText(
        reclaim_sentences.lower_priority_protected, _always("wait for work to end, or relax what protects it")
    ),
    Reason.RESERVED: ObstacleText(
        _reserved,
        _always("wait until the reservation ends, or ask its owner (kaiwo reservations)"),
        _always("wait until the reservation ends, or ask its owner (kubectl get kaiworeservations)"),
    ),
    Reason.RESERVATION: ObstacleText(
        _unusable,
        lambda o: f"{_until_start(o)}name another reservation or none (kaiwo reservations lists them)",
        lambda o: (
            f"{_until_start(o)}name another reservation or none with kaiwo.ai/reservation "
            "(kubectl get kaiworeservations)"
        ),
    ),
    Reason.EXPIRED: ObstacleText(
        lambda o: f"its allocation was granted until {clock_words(o.need)}",
        _always("submit it again with a later --expires, or without one"),
        _always("create it again with a later kaiwo.ai/expires, or without one"),
    ),
    Reason.NOMINATED: ObstacleText(
        lambda o: f"space for {need_words(o)} is kept for {o.subject}",
        _always("wait; the space is released if it is not used"),
    ),
    Reason.PROMISED: ObstacleText(
        _promised,
        _promised_remedy,
        lambda o: f"limit its run time with kaiwo.ai/time if it takes no longer, or wait until {o.subject} has started",
    ),
    Reason.RELEASING: ObstacleText(_releasing, _always("wait a moment; it will be tried again when they are gone")),
    Reason.PLUGIN: ObstacleText(
        _always("the policy's filters leave no node"), _always("check the filters of the policy")
    ),
    Reason.NOT_TRIED: ObstacleText(_always("it has not been tried yet"), _always("wait; the next cycles will try it")),
}
