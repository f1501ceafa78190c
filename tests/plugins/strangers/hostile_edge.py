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


@kind("reserve", "raised RuntimeError: the second of")
def reserve_raises_half_way(placements, now_s):
    for number, _ in enumerate((*placements, None)):
        if number:
            raise RuntimeError(f"the second of {len(placements)}")


@kind("reserve", "refused for 0 s")
def reserve_refuses_for_no_time(placements, now_s):
    return [Verdict("busy", 0) for _ in placements]


@kind("permit", "returned what was not expected: .* bytes")
def permit_gives_reasons_without_end(placements, now_s):
    return [Verdict("x" * (5 << 20)) for _ in placements]


@kind("bind", "32 is the most")
def bind_gives_too_many_keys(placements):
    return [{f"example.com/k{at}": "v" for at in range(33)} for _ in placements]


@kind("bind", "expected one such as")
def bind_sets_what_programs_load(placements):
    return [{"LD_PRELOAD": "/tmp/own.so"} for _ in placements]


@kind("post_bind", "raised RecursionError")
def post_bind_recurses(placements, now_s):
    post_bind_recurses.misbehave(None, placements, now_s)


@kind("sink", "raised UnicodeEncodeError|raised .*surrogate")
def sink_says_what_is_no_text(sample):
    return "\ud800"


@kind("metrics", "use lower-case letters")
def metrics_forge_lines_of_others(sample):
    return [Metric('a 1\nkaiwo_up{x="', 1)]


@kind("metrics", "too long or not printable")
def metrics_hide_a_line_in_a_subject(sample):
    return [Metric("a", 1, "b\nkaiwo_up 0")]


@kind("metrics", "twice")
def metrics_say_the_same_twice(sample):
    return [Metric("a", 1), Metric("a", 2)]


@kind("resource", "64 is the most")
def resource_has_too_many_names(nodes):
    return ResourceAmounts(floating={f"example.com/r{at}": 1 for at in range(65)})


@kind("resource", "which is not for plugins")
def resource_makes_gpus(nodes):
    return ResourceAmounts(on_nodes={"amd.com/gpu": {nodes[0].name: 8}})


@kind("topology_source", "topology_source: ")
def topology_has_names_that_move_the_cursor(nodes, text):
    return Topology("net", (TopologyLevel("rack"),), (Domain("\x1b[2J", "rack", nodes=(nodes[0].name,)),))


@kind("topology_source", "topology_source: ")
def topology_has_links_of_no_speed(nodes, text):
    return Topology("net", (TopologyLevel("rack", uplink_mb_s=-(2**62), uplinks=2**62),), (Domain("r", "rack"),))
