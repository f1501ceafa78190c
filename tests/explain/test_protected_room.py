"""What a place protects is told in GPUs: `why` and dry runs compare it with the fullest other node."""

import re

from kaiwo.explain.trial_submission import try_submission
from kaiwo.explain.why import protected
from kaiwo.model.events import PodChanged, WorkloadChanged
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.runtime.loop.price_refresh import refreshed_prices
from tests.plugins.test_request_mix import Learner, node

CPU_WORK = Request(4000, 10)
SENTENCE = (
    "on b it takes nothing of what other requests could use; on a, the fullest other node with room, "
    r"it would take ([0-9.]+) GPU"
)


def world(*names: str) -> Learner:
    """Requests of 4 CPUs and a GPU arrive. Node `a` has just as much CPU as its GPUs need, the others have more."""
    nodes = [node(name, 2, 8 if name == "a" else 64) for name in names]
    learner = Learner(nodes, [Request(4000, 10, 1)])
    learner.runner.state.refresh_tables()
    prices = refreshed_prices(learner.runner.state)
    assert prices is not None
    learner._take([prices])
    return learner


def run(learner: Learner, at: str) -> str:
    """What is said of work that runs there."""
    pod = Pod("default/w", "main-0", at, cpu_milli=CPU_WORK.cpu_milli, memory_mib=CPU_WORK.memory_mib)
    learner._take([WorkloadChanged(Workload("default/w", (Role(CPU_WORK),))), PodChanged(pod)])
    return protected(learner.runner.state, "default/w", Policy(), 1)


def test_gpus_that_would_be_stranded_elsewhere_are_told() -> None:
    said = re.fullmatch(SENTENCE, run(world("a", "b"), "b"))
    assert said is not None
    assert 0.5 <= float(said[1]) <= 1, "a GPU would have no CPU left; the other one counts for a part of its use"


def test_nothing_is_told_where_nothing_is_protected() -> None:
    assert run(world("a", "b"), "a") == "", "it is the worse node"
    assert run(world("b", "c"), "b") == "", "both are alike"
    assert run(world("b"), "b") == "", "there is no other"


def test_nothing_is_told_where_the_mix_has_no_say() -> None:
    learner = world("a", "b")
    assert run(learner, "b")
    off = Policy(disabled_plugins=("request-mix",))
    assert protected(learner.runner.state, "default/w", off, 1) == ""


def test_a_dry_run_tells_it_after_the_score() -> None:
    learner = world("a", "b")
    [found] = try_submission(learner.runner.state, [Workload("default/w", (Role(CPU_WORK),))], Policy(), 2)
    assert found.nodes == ("b",)
    assert found.choice.startswith("b is the best of 2 nodes with room:")
    assert re.search("; " + SENTENCE + "$", found.choice)
