"""Hostile worlds around gangs that lose pods: whatever comes and goes meanwhile, their places are theirs."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.events import NodeChanged, NominationChanged, PodGone, WorkloadChanged
from kaiwo.model.plan import Nomination
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.workload import Workload, pod_index
from tests.conftest import SIZE
from tests.worlds import World, audit

KEPT_S = DEFAULT_POLICY.keep_lost_place_s
GPUS, GANG_NODES, OTHER_NODES = 4, 3, 2
GANGS = ("default/one", "default/two")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("lose"), st.sampled_from(GANGS), st.just(0)),
        st.tuples(st.just("replace"), st.sampled_from(GANGS), st.just(0)),
        st.tuples(st.just("submit"), st.integers(1, GPUS + 2), st.sampled_from([0, 20, 100, 5_000])),
        st.tuples(st.just("gang"), st.integers(2, 4), st.integers(1, GPUS)),
        st.tuples(st.just("finish"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 90), st.just(0)),
        st.tuples(st.just("close"), st.integers(0, OTHER_NODES - 1), st.just(0)),
    ),
    min_size=3,
    max_size=25,
)


class HostileWorld:
    """Two gangs fill their nodes; two nodes are left for others, who never have enough."""

    def __init__(self) -> None:
        self.world = World(nodes=2 * GANG_NODES + OTHER_NODES, gpus_per_node=GPUS)
        self.world.now_s = 1000
        self.pods = dict.fromkeys(GANGS, GANG_NODES)  # as its controller has made them
        self.lost: dict[str, dict[str, Nomination]] = {name: {} for name in GANGS}  # by slot: what is kept
        self.others = 0
        for name in GANGS:
            self.world.submit(name, pods=GANG_NODES, gpus_each=GPUS).settle()

    def play(self, verb: str, first: object, second: int) -> None:
        world = self.world
        match verb, first:
            case "lose", str(name) if len(world.state.pods[name]) == self.pods[name] > 1:
                self._lose(name)
            case "replace", str(name) if self.pods[name] < GANG_NODES:
                self.pods[name] += 1
                world.tell(WorkloadChanged(self._gang(name)))
            case "submit", int(gpus):
                self.others += 1
                world.submit(f"other-{self.others}", gpus_each=gpus, estimate_s=second)
            case "gang", int(pods_of_other):
                self.others += 1
                world.submit(f"other-{self.others}", pods=pods_of_other, gpus_each=second, minimum=1)
            case "finish", int(which):
                running = sorted(set(world.state.pods) - set(GANGS))
                if running:
                    world.finish(running[which % len(running)])
            case "wait", int(seconds):
                world.now_s += seconds
            case "close", int(which):
                node = world.state.node_objects[f"node-{2 * GANG_NODES + which}"]
                world.tell(NodeChanged(replace(node, cordoned=not node.cordoned)))

    def _gang(self, name: str) -> Workload:
        workload = self.world.state.workloads[name]
        return replace(workload, roles=(replace(workload.roles[0], count=self.pods[name]),))

    def _lose(self, name: str) -> None:
        """As an adapter tells it: the gang has one pod less, and the place is kept."""
        world = self.world
        slot = max(world.state.pods[name], key=pod_index)
        pod = world.state.pods[name][slot]
        kept = Nomination(name, slot, pod.node, pod.devices, lost_s=world.now_s)
        self.pods[name] -= 1
        self.lost[name][slot] = kept
        world.tell(NominationChanged(kept), PodGone(name, slot), WorkloadChanged(self._gang(name)))

    def check(self) -> None:
        world = self.world
        assert audit(world.state) == []
        for name in GANGS:
            pods, kept = world.state.pods[name], self.lost[name]
            for slot, place in kept.items():
                if world.now_s - place.lost_s >= KEPT_S:
                    continue
                if slot in pods:
                    assert pods[slot].node == place.node, f"{name} {slot} is on another node than the lost pod"
                for other, beside in world.state.pods.items():
                    taken = [pod for pod in beside.values() if pod.node == place.node and other != name]
                    assert all(pod.until_s for pod in taken), f"{other} has the place of {name} {slot}"
            if all(world.now_s - place.lost_s < KEPT_S for place in kept.values()):
                assert len(pods) == self.pods[name], f"{name} has {len(pods)} of {self.pods[name]} pods"
            for slot in kept.keys() & pods.keys():
                del kept[slot]


@settings(max_examples=60 * SIZE)
@given(steps)
def test_whatever_comes_and_goes_a_gang_gets_its_places_back(
    played: list[tuple[str, object, int]],
) -> None:
    world = HostileWorld()
    for step in played:
        world.play(*step)
        plans = world.world.settle()
        evicted = {each.workload for plan in plans for each in plan.evictions}
        assert not evicted & set(GANGS), f"{evicted} lost pods that ran"
        world.check()


@settings(max_examples=30 * SIZE)
@given(steps)
def test_what_nobody_fetches_is_free_in_time(played: list[tuple[str, object, int]]) -> None:
    """Neither losses again and again nor anything else keeps a place beyond the time of the policy."""
    hostile = HostileWorld()
    world = hostile.world
    for step in played:
        hostile.play(*step)
        world.settle()
    world.now_s += KEPT_S
    world.settle()
    assert not any(world.state.nominations.get(name) for name in GANGS)
    world.submit("greedy", pods=2 * GANG_NODES * GPUS, gpus_each=1, minimum=1).settle()
    used = {pod.node for pods in world.state.pods.values() for pod in pods.values()}
    assert used >= {f"node-{number}" for number in range(2 * GANG_NODES)}, "places are kept from work that waits"
