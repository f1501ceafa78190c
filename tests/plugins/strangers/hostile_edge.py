"""Plugins at the edge that misbehave, each in its own way, after a good answer. They run in a worker process only."""

# ruff: noqa: B018, SIM115
import os
import socket
import time

from kaiwo.plugins import ALLOWED, Domain, Metric, ResourceAmounts, Topology, TopologyLevel, Verdict

GOOD_ANSWERS = 1
KINDS: dict = {}


class Hostile:
    version = "1"
    calls = 0

    def answer(self, good, *arguments):
        self.calls += 1
        return good(*arguments) if self.calls <= GOOD_ANSWERS else self.misbehave(*arguments)


GOOD = {
    "reserve": lambda placements, now_s: [ALLOWED for _ in placements],
    "permit": lambda placements, now_s: [ALLOWED for _ in placements],
    "bind": lambda placements: [{} for _ in placements],
    "post_bind": lambda placements, now_s: None,
    "sink": lambda sample: "",
    "metrics": lambda sample: [],
    "notification": lambda notice: "",
    "resource": lambda nodes: ResourceAmounts(),
    "topology_source": lambda nodes, text: None,
}


def kind(point, words):
    """A point, a kind of misbehaviour there, and what the report about it says."""

    def make(function):
        cls = type(function.__name__, (Hostile,), {"name": function.__name__.replace("_", "-"), "words": words})
        cls.misbehave = lambda self, *arguments: function(*arguments)
        setattr(cls, point, lambda self, *arguments: self.answer(GOOD[point], *arguments))
        cls.point = point
        KINDS[function.__name__] = cls
        return cls

    return make


@kind("permit", "did not answer within")
def permit_never_answers(placements, now_s):
    while True:
        pass


@kind("permit", "raised ZeroDivisionError")
def permit_raises(placements, now_s):
    1 // 0


@kind("permit", "ended its process with status 7")
def permit_exits(placements, now_s):
    os._exit(7)


@kind("permit", r"returned \d+ verdicts for \d+ placements")
def permit_answers_too_little(placements, now_s):
    return [ALLOWED] * (len(placements) + 1)


@kind("permit", "returned what was not expected")
def permit_answers_nonsense(placements, now_s):
    return ["yes"] * len(placements)


@kind("permit", "refused for 1000000000 s")
def permit_refuses_for_ever(placements, now_s):
    return [Verdict("never", 10**9) for _ in placements]


@kind("reserve", "did not answer within")
def reserve_sleeps(placements, now_s):
    time.sleep(3600)


@kind("bind", "raised RuntimeError: no")
def bind_raises(placements):
    raise RuntimeError("no")


@kind("bind", "which is not for plugins")
def bind_forges_our_keys(placements):
    return [{"kaiwo.ai/gpu-devices": "gpu-7"} for _ in placements]


@kind("bind", "which is not for plugins")
def bind_forges_kubernetes_keys(placements):
    return [{"pod.kubernetes.io/lie": "1"} for _ in placements]


@kind("bind", "too long or not printable")
def bind_hides_a_line(placements):
    return [{"example.com/a": "1\n2"} for _ in placements]


@kind("post_bind", "tried os.fork|system call")
def post_bind_forks(placements, now_s):
    os.fork()


@kind("sink", "did not answer within")
def sink_blocks(sample):
    time.sleep(3600)


@kind("sink", "tried to open /tmp/kaiwo-plugin-was-here")
def sink_writes_by_itself(sample):
    open("/tmp/kaiwo-plugin-was-here", "w")


@kind("metrics", "returned nan")
def metrics_are_no_numbers(sample):
    return [Metric("a", float("nan"))]


@kind("metrics", "1,000 is the most")
def metrics_are_too_many(sample):
    return [Metric(f"m{at}", at) for at in range(100_000)]


@kind("notification", "tried socket|system call")
def notification_connects_by_itself(notice):
    socket.socket()


@kind("notification", "characters")
def notification_is_endless(notice):
    return "x" * (2 << 20)


@kind("resource", "returned -5 of")
def resource_is_negative(nodes):
    return ResourceAmounts(floating={"example.com/licence": -5})


@kind("resource", "expected 0 to 1,000,000,000")
def resource_is_huge(nodes):
    return ResourceAmounts(floating={"example.com/licence": 2**62})


@kind("resource", "which does not exist")
def resource_is_of_no_node(nodes):
    return ResourceAmounts(on_nodes={"example.com/card": {"node-of-nobody": 1}})


@kind("resource", "expected a name such as")
def resource_is_the_cpu(nodes):
    return ResourceAmounts(floating={"cpu": 10**6})


@kind("topology_source", "returned what was not expected")
def topology_is_garbage(nodes, text):
    return {"name": 7, "levels": "many"}


@kind("topology_source", "domains|too long")
def topology_has_a_million_domains(nodes, text):
    domains = tuple(Domain(f"d{at}", "rack") for at in range(1_000_000))
    return Topology("net", (TopologyLevel("rack"),), domains)


@kind("topology_source", "domains")
def topology_has_too_many_domains(nodes, text):
    return Topology("net", (TopologyLevel("rack"),), tuple(Domain(f"d{at}", "rack") for at in range(50_000)))


@kind("topology_source", "topology_source: ")
def topology_is_above_itself(nodes, text):
    levels = (TopologyLevel("block"), TopologyLevel("rack"))
    return Topology("net", levels, (Domain("a", "rack", ("b",)), Domain("b", "rack", ("a",))))
