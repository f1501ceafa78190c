"""What a generated pod may ask for, one rule a function: each draws a form of its rule and writes it into the pod.

In:    a source of chance, a pod, the namespaces.   Out: the pod with one more rule.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Json = dict[str, Any]
Rule = Callable[[Random, Json, Sequence[str]], None]

ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"
LEVELS = (ZONE, HOST, RACK, "topology.kubernetes.io/region")
APPS, TIERS = ("web", "db", "cache"), ("front", "back")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CALM = "calm"  # a PriorityClass that stops nobody
RUNTIME = {"name": "heavy", "cpu": "1500m", "memory": "2000Mi"}  # a RuntimeClass with an overhead


def plain_pod(draw: Random, name: str, space: str, scheduler: str) -> Json:
    labels = {"app": draw.choice((*APPS, "alone"))}
    if draw.random() < 0.7:
        labels["tier"] = draw.choice(TIERS)
    if draw.random() < 0.3:
        labels["pod-template-hash"] = draw.choice(("1", "2"))
    container = {"name": "main", "image": "work"}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 600}
    return {"metadata": {"name": name, "namespace": space, "labels": labels}, "spec": spec}


def small(draw: Random, pod: Json) -> None:
    """So little that it matters on crowded nodes alone."""
    ask = {"cpu": draw.choice(("0", "50m", "300m")), "memory": draw.choice(("0", "100Mi", "700Mi"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": ask}


def resize(draw: Random, pod: Json) -> Json:
    """The status of a pod of which the kubelet has not given yet, or not taken back, what the spec says."""
    name = pod["spec"]["containers"][0]["name"]
    runs, allocated = (
        {"cpu": draw.choice(("50m", "600m", "1500m")), "memory": draw.choice(("100Mi", "900Mi", "2Gi"))} for _ in "12"
    )
    given: Json = {"name": name, "image": "work", "imageID": "", "ready": True, "restartCount": 0}
    if draw.random() < 0.9:
        given["resources"] = {"requests": runs}
    if draw.random() < 0.9:
        given["allocatedResources"] = allocated
    status: Json = {"phase": "Running", "containerStatuses": [given]}
    if draw.random() < 0.4:
        reason = draw.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def amounts(draw: Random, pod: Json, _: Sequence[str]) -> None:
    """Containers, start-up containers, sidecars, overhead, and pods as a whole."""
    spec = pod["spec"]
    spec["containers"] = [_container(draw, f"c{number}") for number in range(draw.choice((1, 1, 2)))]
    starters = [_container(draw, f"i{number}", 2) for number in range(draw.choice((0, 0, 1, 2, 3)))]
    for each in starters:
        if draw.random() < 0.5:
            each["restartPolicy"] = "Always"
    if starters:
        spec["initContainers"] = starters
    if draw.random() < 0.4:
        spec["runtimeClassName"] = RUNTIME["name"]
    if draw.random() < 0.15 and not any("hugepages-2Mi" in str(each) for each in (*spec["containers"], *starters)):
        spec["resources"] = {"requests": {"cpu": "3", "memory": "3Gi"}}
        for each in (*spec["containers"], *starters):
            each["resources"] = {"requests": {"cpu": "100m"}}


def gpus(draw: Random, pod: Json, _: Sequence[str]) -> None:
    ask = {"amd.com/gpu": draw.choice(("1", "2", "3", "8", "9"))}
    pod["spec"]["containers"][0]["resources"] = {"requests": ask, "limits": ask}


def node_selector(draw: Random, pod: Json, _: Sequence[str]) -> None:
    choices = {"disk": ("ssd", "hdd"), ZONE: ("a", "b", "c"), RACK: ("1", "2", "9")}
    keys = draw.sample(sorted(choices), draw.choice((1, 1, 1, 2)))
    pod["spec"]["nodeSelector"] = {key: draw.choice(choices[key]) for key in keys}


def node_affinity(draw: Random, pod: Json, _: Sequence[str]) -> None:
    """Several terms, of which one must hold; also terms that hold nowhere."""
    terms = []
    for _ in range(draw.choice((1, 2, 2, 3))):
        term: Json = {"matchExpressions": [expression(draw) for _ in range(draw.choice((1, 1, 2)))]}
        terms.append({} if draw.random() < 0.1 else term)
    _affinity(pod)["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}


def name_a_node(draw: Random, pod: Json, nodes: Sequence[str]) -> None:
    """Sometimes a term names a node, or all but one."""
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    if draw.random() < 0.4:
        field = {"key": "metadata.name", "operator": draw.choice(("In", "NotIn")), "values": [draw.choice(nodes)]}
        terms[0]["matchFields"] = [field]
        if draw.random() < 0.5:
            terms[0].pop("matchExpressions", None)


def expression(draw: Random, is_for_volume: bool = False) -> Json:
    kind = draw.choice(("In", "NotIn", "Exists", "DoesNotExist") + (() if is_for_volume else ("Gt", "Lt")))
    if kind in ("Gt", "Lt"):
        return {"key": "gen", "operator": kind, "values": [draw.choice(("0", "4", "9", "x"))]}
    choices = (("disk", ("ssd", "hdd")), (ZONE, ("a", "b", "c")), ("gen", ("1", "new")), ("no", ("x",)))
    key, values = draw.choice(choices)
    found: Json = {"key": key, "operator": kind}
    if kind in ("In", "NotIn"):
        found["values"] = draw.sample(values, draw.randint(1, len(values)))
    return found


def tolerations(draw: Random, pod: Json, _: Sequence[str]) -> None:
    found = []
    for _ in range(draw.choice((1, 2, 3, 4))):
        keys = ("dedicated", "drain", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
        each: Json = {"key": draw.choice((*keys, "node.kubernetes.io/unreachable", "dedicated"))}
        if draw.random() < 0.5:
            each["operator"] = "Exists"
        else:
            each |= {"value": draw.choice(("", "x", "y"))} | draw.choice(({}, {"operator": "Equal"}))
        if draw.random() < 0.6:
            each["effect"] = draw.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        found.append(each)
    if draw.random() < 0.15:
        found.append({"operator": "Exists"})
    pod["spec"]["tolerations"] = found


def near(draw: Random, pod: Json, spaces: Sequence[str]) -> None:
    terms = [_term(draw, pod, spaces) for _ in range(draw.choice((1, 1, 1, 2)))]
    _affinity(pod)["podAffinity"] = {REQUIRED: terms}


def apart(draw: Random, pod: Json, spaces: Sequence[str]) -> None:
    terms = [_term(draw, pod, spaces) for _ in range(draw.choice((1, 1, 2)))]
    _affinity(pod)["podAntiAffinity"] = {REQUIRED: terms}


def spread(draw: Random, pod: Json, _: Sequence[str]) -> None:
    found: list[Json] = []
    for level in draw.sample(LEVELS, draw.choice((1, 2, 2))):
        rule: Json = {"topologyKey": level, "maxSkew": draw.choice((1, 1, 2, 4))}
        rule["whenUnsatisfiable"] = "ScheduleAnyway" if draw.random() < 0.1 else "DoNotSchedule"
        rule["labelSelector"] = _selector(draw, pod)
        if draw.random() < 0.5:
            rule["nodeAffinityPolicy"] = draw.choice(("Honor", "Ignore", "Ignore"))
        if draw.random() < 0.4:
            rule["nodeTaintsPolicy"] = draw.choice(("Honor", "Ignore"))
        if draw.random() < 0.3 and rule["whenUnsatisfiable"] == "DoNotSchedule":
            rule["minDomains"] = draw.choice((1, 3, 4, 9))
        used = str(rule["labelSelector"])
        if draw.random() < 0.25 and rule["labelSelector"] is not None and "pod-template-hash" not in used:
            rule["matchLabelKeys"] = ["pod-template-hash"]
        if rule["labelSelector"] is None:
            del rule["labelSelector"]
        found.append(rule)
    pod["spec"]["topologySpreadConstraints"] = found


def ports(draw: Random, pod: Json, _: Sequence[str]) -> None:
    wanted = []
    for number in draw.sample((8080, 9090, 7070), draw.choice((1, 1, 2))):
        port: Json = {"containerPort": number, "hostPort": number}
        port |= draw.choice(({}, {}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, {"hostIP": "0.0.0.0"}))
        port |= draw.choice(({}, {}, {"protocol": "TCP"}, {"protocol": "UDP"}))
        wanted.append(port)
    container: Json = {"name": "ports", "image": "work", "ports": wanted}
    kind = draw.random()
    if kind < 0.75:
        pod["spec"]["containers"].append(container)
    else:  # a sidecar keeps its ports; a start-up container gives them back
        starter = container | ({"restartPolicy": "Always"} if kind < 0.9 else {})
        pod["spec"].setdefault("initContainers", []).append(starter)


def gate(draw: Random, pod: Json, _: Sequence[str]) -> None:
    if draw.random() < 0.3:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]


def never_preempt(_: Random, pod: Json, __: Sequence[str]) -> None:
    pod["spec"]["priorityClassName"] = CALM


# Those with many forms come more often.
LIKELY = (
    *("host ports", "amounts", "tolerations", "pod anti-affinity"),
    *("spread", "spread", "spread", "pod affinity", "pod affinity"),
)
BY_NAME: dict[str, Rule] = {
    "amounts": amounts,
    "gpus": gpus,
    "node selector": node_selector,
    "node affinity": node_affinity,
    "tolerations": tolerations,
    "pod affinity": near,
    "pod anti-affinity": apart,
    "spread": spread,
    "host ports": ports,
    "gate": gate,
    "preemption policy": never_preempt,
}


def _affinity(pod: Json) -> Json:
    found: Json = pod["spec"].setdefault("affinity", {})
    return found


def _container(draw: Random, name: str, times: int = 1) -> Json:
    ask = {
        "cpu": f"{times * draw.choice((0, 100, 700, 1500))}m",
        "memory": f"{times * draw.choice((0, 100, 900, 2000))}Mi",
    }
    if draw.random() < 0.2:
        ask["ephemeral-storage"] = f"{times * draw.choice((1, 4))}Gi"
    firm = {}
    if draw.random() < 0.2:
        firm["example.com/widget"] = str(draw.choice((1, 2)))
    if draw.random() < 0.1:
        firm["hugepages-2Mi"] = f"{draw.choice((8, 32))}Mi"
        ask |= {"cpu": "100m", "memory": "100Mi"}
    return {"name": name, "image": "work", "resources": {"requests": ask | firm, "limits": firm}}


def _term(draw: Random, pod: Json, spaces: Sequence[str]) -> Json:
    term: Json = {"topologyKey": draw.choice((HOST, HOST, RACK, RACK, *LEVELS))}
    selector = _selector(draw, pod)
    if selector is not None:
        term["labelSelector"] = selector
    kind = draw.random()
    if kind < 0.2:
        term["namespaces"] = draw.sample(list(spaces), draw.choice((1, 2)))
    elif kind < 0.4:
        excludes: list[Json] = [{"key": "stage", "operator": "DoesNotExist"}]
        excludes.append({"key": "team", "operator": "NotIn", "values": draw.choice((["red"], ["red", "blue"]))})
        exists = {"key": "stage", "operator": "Exists"}
        forms: tuple[Json, ...] = ({}, {"matchLabels": {"team": "red"}}, {"matchExpressions": [exists]})
        forms += ({"matchExpressions": excludes[:1]}, {"matchExpressions": excludes[1:]})
        forms += ({"matchExpressions": excludes}, {"matchExpressions": [exists, excludes[1]]})
        term["namespaceSelector"] = draw.choice(forms)
        if draw.random() < 0.3:
            term["namespaces"] = [draw.choice(spaces)]
    used = str(selector)
    if selector is not None and draw.random() < 0.2 and "tier" not in used:
        term[draw.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"]
    return term


def _selector(draw: Random, pod: Json) -> Json | None:
    kind = draw.random()
    if kind < 0.02:
        return None
    if kind < 0.05:
        return {}
    app = pod["metadata"]["labels"]["app"] if draw.random() < 0.5 else draw.choice((*APPS, "nobody"))
    if kind < 0.6:
        found: Json = {"matchLabels": {"app": app}}
    else:
        values = sorted({app, draw.choice(APPS)})
        found = {"matchExpressions": [{"key": "app", "operator": draw.choice(("In", "NotIn")), "values": values}]}
    if draw.random() < 0.25:
        more = {"key": "tier", "operator": draw.choice(("Exists", "DoesNotExist"))}
        found.setdefault("matchExpressions", []).append(more)
    return found
