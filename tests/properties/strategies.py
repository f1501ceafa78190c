"""Random small worlds for the laws: mixed models, broken devices, queues with limits, every kind of request."""

from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import Event, NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node, Taint
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Role, Workload

MODELS = {"MI300X": 196_608, "MI210": 65_536, "L40S": 46_068}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    model = draw(st.sampled_from(sorted(MODELS)))
    count = draw(st.integers(0, 5))
    sick = draw(st.sets(st.integers(0, 4), max_size=1))
    return Node(
        name,
        cpu_milli=draw(st.sampled_from([4_000, 16_000, 64_000])),
        memory_mib=draw(st.sampled_from([8_192, 65_536])),
        pods=draw(st.sampled_from([2, 5, 110])),
        gpus=tuple(Gpu(f"gpu-{at}", model, MODELS[model], healthy=at not in sick) for at in range(count)),
        extended=draw(st.sampled_from([{}, {}, {"example.com/nic": 2}])),
        labels={"zone": draw(st.sampled_from("ab"))},
        taints=draw(st.sampled_from([(), (), (Taint("gpu", "only"),)])),
        cordoned=draw(st.integers(0, 9)) == 0,
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    kind = draw(st.sampled_from(["whole", "whole", "fraction", "memory", "cpu"]))
    request = Request(
        cpu_milli=draw(st.sampled_from([0, 500, 1_000, 4_000])),
        memory_mib=draw(st.sampled_from([0, 512, 4_096])),
        gpu_models=draw(st.sampled_from([(), (), ("MI300X",), ("MI210", "L40S")])) if kind != "cpu" else (),
        extended=draw(st.sampled_from([(), (), (), (("example.com/nic", 1),)])),
        node_rules=draw(st.sampled_from([(), (), (NodeRule("zone", "In", ("a",)),)])),
        tolerations=draw(st.sampled_from([(), (Toleration("gpu", "Exists"),)])),
    )
    if kind == "whole":
        return replace(request, gpus=draw(st.integers(1, 5)))
    if kind == "fraction":
        milli = 10 * draw(st.integers(1, 99))
        return replace(request, gpus=draw(st.sampled_from([1, 1, 1, 2, 3])), gpu_milli=milli)
    if kind == "memory":
        mib = draw(st.sampled_from([50, 2_000, 20_000, 46_068, 90_000]))
        return replace(request, gpus=draw(st.sampled_from([1, 1, 2])), gpu_mib=mib)
    return request


@st.composite
def workloads(draw: st.DrawFn, name: str, queues: list[str]) -> Workload:
    roles = []
    for at in range(draw(st.sampled_from([1, 1, 1, 2]))):
        count = draw(st.sampled_from([1, 1, 1, 2, 4, 7]))
        minimum = draw(st.sampled_from([-1, -1, 1, 2]))
        roles.append(Role(draw(requests()), f"role{at}", count, minimum))
    return Workload(
        f"default/{name}",
        tuple(roles),
        queue=draw(st.sampled_from([*queues, "nowhere"]) if draw(st.integers(0, 19)) == 0 else st.sampled_from(queues)),
        user=draw(st.sampled_from(["ann", "bob"])),
        priority=draw(st.sampled_from([0, 0, 50, 100])),
        submitted_s=draw(st.integers(0, 5)),
        held=draw(st.integers(0, 14)) == 0,
        not_before_s=draw(st.sampled_from([0, 0, 0, 3, 1_000])),
    )


@st.composite
def states(draw: st.DrawFn, most_nodes: int = 5, most_workloads: int = 14) -> list[Event]:
    """The events of a whole cluster, one an object."""
    limits = st.sampled_from([-1, -1, 500, 2_000, 6_000])
    queues = [Queue("default"), Queue("org", gpu=QueueAmounts(limit=draw(limits)))]
    for name in ("a", "b"):
        queues.append(Queue(name, "org", gpu=QueueAmounts(limit=draw(limits), weight=draw(st.integers(1, 3)))))
    leaves = ["default", "a", "b"]
    count = draw(st.integers(1, most_nodes))
    work = draw(st.integers(0, most_workloads))
    return [
        *(QueueChanged(queue) for queue in queues),
        *(NodeChanged(draw(nodes(f"node-{at}"))) for at in range(count)),
        *(WorkloadChanged(draw(workloads(f"w{at:02d}", leaves))) for at in range(work)),
    ]
