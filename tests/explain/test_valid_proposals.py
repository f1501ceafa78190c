"""What `why` proposes comes in by the door: set in place, or typed again with all other flags kept, it starts.

The states are made of command lines. A proposal's flags take the place of those that were typed, the command line's own
parser makes the form of them, the form is read as the server reads it, and admission looks at it as at any other.
"""

import random
import shlex
from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import replace

from kaiwo.cli.name_completion import current_user
from kaiwo.cli.verbs.workloads.set_fields import _field
from kaiwo.cli.verbs.workloads.submit import submit
from kaiwo.cli.workload_options import make_form
from kaiwo.clusters.queue_access import check_queue_access
from kaiwo.explain import Why, why
from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.possible_changes import SHARED_WHOLE, QueueBoundRef, raised
from kaiwo.explain.verify_change import WhatIf
from kaiwo.manifests import parse
from kaiwo.manifests.kinds.object_metadata import ManifestDefaults
from kaiwo.manifests.workload_change import apply_change, raised_fields
from kaiwo.model.events import NodeChanged, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import SHARED_MILLI, TIME_SLICING, Gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.queue_validation import check_queue_tree
from kaiwo.model.workload import Workload
from tests.conftest import IS_QUICK, SIZE
from tests.explain.generated_worlds import SIZES, made_queue
from tests.worlds import World

GPU_FLAGS = {"--gpus", "--shared", "--fraction", "--devices"}
Flags = dict[str, str]  # by their long names; empty for those that stand alone


def read(name: str, flags: Flags, submitted_s: int = 0) -> Workload:
    """As the command line and the server do it together."""
    words = [part for flag, value in flags.items() for part in ([flag, value] if value else [flag])]
    ctx = submit.make_context("submit", [name, "--user", current_user(), *words, "--simulate", "1h"])
    options = {key: value for key, value in ctx.params.items() if key not in ("files", "dry_run", "wait", "output")}
    ((workload, _),) = parse(make_form(ctx, options), ManifestDefaults(submitted_s=submitted_s)).submissions
    return workload


def proposed_flags(answer: Why) -> Flags:
    """What stands between the name and the three dots, where the rest is to be typed."""
    assert answer.change is not None
    _, _, line = answer.change.command.partition(" && kaiwo submit ")
    name, *words, dots = shlex.split(line)
    assert (name, dots) == (answer.workload.removeprefix("default/"), "...")
    flags: Flags = {}
    for word in words:
        if word.startswith("--"):
            flags[word] = ""
        else:
            flags[list(flags)[-1]] = word
    return flags


def proposed_fields(answer: Why) -> dict[str, Any]:
    """What `kaiwo set` sends for the proposal."""
    assert answer.change is not None
    name, *words = shlex.split(answer.change.command.removeprefix("kaiwo set "))
    assert name == answer.workload.removeprefix("default/")
    return dict(_field(word) for word in words)


def typed_again(flags: Flags, new: Flags) -> Flags:
    """The new ones in place of the old; those that say all there is to say of GPUs, in place of all of these."""
    gone = GPU_FLAGS if len(GPU_FLAGS & set(new)) > 1 else set()
    return {flag: value for flag, value in flags.items() if flag not in gone} | new


def random_flags(rng: random.Random) -> Flags:
    flags: Flags = {"--cpu": rng.choice(["500m", "1", "6"]), "--memory": rng.choice(["1Gi", "20Gi"])}
    match rng.choice(["whole", "whole", "shared", "fraction", "memory", "cpu"]):
        case "whole":
            flags["--gpus"] = str(rng.choice([1, 2, 4, 9]))
        case "shared":
            flags |= {"--gpus": str(rng.choice([1, 2, 6, 12])), "--shared": ""}
        case "fraction":
            flags |= {"--fraction": rng.choice(["0.25", "0.5", "0.9"]), "--devices": str(rng.choice([1, 2, 6, 12]))}
        case "memory":
            flags |= {"--gpu-memory": rng.choice(["2000", "60000", "196609"]), "--devices": str(rng.choice([1, 3]))}
        case "cpu":
            flags["--cpu"] = rng.choice(["4", "12", "70"])
    if rng.random() < 0.4:
        pods = rng.choice([2, 3, 5])
        flags["--pods"] = str(pods)
        if rng.random() < 0.6:
            flags["--min-pods"] = str(rng.randint(1, pods))
    if rng.random() < 0.3 and "--gpus" in flags:
        flags["--model"] = rng.choice(sorted(SIZES))
    if rng.random() < 0.3:
        flags["--no-preempt"] = ""
    return flags | {"--priority": str(rng.choice([0, 0, 50]))}


def world_of_flags(seed: int) -> tuple[World, dict[str, Flags]]:
    """Everybody in it came in by the door."""
    rng = random.Random(seed)
    world, typed = World(nodes=0), {}
    for name, parent in (("default", ""), ("org", ""), ("lab", "org"), ("prod", "org"), ("shared", "")):
        users = rng.choice([(), (), ("ann",), ("bob", "cat")]) if name != "default" else ()
        namespaces = rng.choice([(), (), (), ("other",)]) if name != "default" else ()
        queue = made_queue(rng, name, parent, [-1, 4_000])
        world.tell(QueueChanged(replace(queue, users=users, namespaces=namespaces)))
    for number in range(rng.randint(1, 3)):
        model = rng.choice(sorted(SIZES))
        gpus = tuple(Gpu(f"gpu-{at}", model, SIZES[model]) for at in range(rng.choice([1, 2, 4, 8])))
        world.tell(NodeChanged(Node(f"node-{number}", rng.choice([8_000, 64_000]), 65_536, gpus=gpus)))
    for number in range(rng.randint(2, 10)):
        name, world.now_s = f"w{number:02d}", number
        flags = random_flags(rng) | {"--user": rng.choice(["ann", "bob"])}
        flags["--queue"] = rng.choice(welcome_queues(world, read(name, flags)))
        typed[name] = flags
        world.tell(WorkloadChanged(read(name, flags, number)))
        if rng.random() < 0.5:
            world.settle()
    world.now_s += 60
    world.settle()
    return world, typed


def welcome_queues(world: World, workload: Workload) -> list[str]:
    return [name for name in ("default", "lab", "prod", "shared") if is_let_in(world, replace(workload, queue=name))]


def is_let_in(world: World, workload: Workload) -> bool:
    try:
        check_queue_access(world.state.queue_objects, workload)
    except Exception:
        return False
    return True


def waiting_states(count: int) -> Iterator[tuple[int, World, str, Flags]]:
    seed = found = 0
    while found < count:
        seed += 1
        world, typed = world_of_flags(seed)
        for name in [name for name in typed if not world.is_running(name)][:3]:
            found += 1
            yield seed, world, name, typed[name]


def test_a_proposal_typed_with_all_other_flags_kept_is_let_in_and_starts() -> None:
    seen: dict[str, int] = {}
    for seed, world, name, flags in waiting_states((60 if IS_QUICK else 400) * SIZE):
        answer = why(world.state, f"default/{name}", world.policy, world.now_s)
        if answer.change is None or not answer.change.command.startswith(
            (f"kaiwo cancel {name} ", f"kaiwo set {name} ")
        ):
            check_others(world, name)
            continue
        if answer.change.command.startswith("kaiwo set"):
            new = proposed_fields(answer)
            before = world.state.workloads[f"default/{name}"]
            changed = apply_change(new, before, world.now_s, [])
            assert not raised_fields(before, changed)  # its user may do that
            assert is_let_in(world, changed), (seed, name, flags, answer.change)
            world.tell(WorkloadGone(changed.name), WorkloadChanged(changed)).decide()
            assert world.is_running(name), (seed, name, flags, answer.change)
            for field in new:
                seen[field] = seen.get(field, 0) + 1
            continue
        new = proposed_flags(answer)
        again = read(name, typed_again(flags, new), world.now_s)
        assert is_let_in(world, again), (seed, name, flags, answer.change)
        world.tell(WorkloadGone(again.name)).decide()
        world.tell(WorkloadChanged(again)).decide()
        assert world.is_running(name), (seed, name, flags, answer.change)
        for flag in new:
            seen[flag] = seen.get(flag, 0) + 1
    flags_due = {"pods", "minPods", "gpus", "gpuDevices", "gpuFraction", "gpuMemory", "cpu", "queue", "--shared"}
    assert IS_QUICK or flags_due <= set(seen), seen


def check_others(world: World, name: str) -> None:
    """A raise leaves a tree of queues that the door lets in."""
    change = cheapest_change(WhatIf(world.state, f"default/{name}", world.policy, world.now_s)).change
    if change is not None and isinstance(change.subject, QueueBoundRef):
        queue = raised(world.state, change.subject, change.value)
        queues: dict[str, Queue] = world.state.queue_objects | {queue.name: queue}
        assert not [finding for finding in check_queue_tree(queues.values()) if finding.is_error]


def answered(world: World, name: str, flags: Flags) -> Any:
    world.tell(WorkloadChanged(read(name, flags))).settle()
    return why(world.state, f"default/{name}", world.policy, world.now_s)


def test_a_queue_that_is_for_others_is_not_proposed() -> None:
    world = World().queue("default", gpu_limit=0).queue("anns", users=("ann",)).queue("other", namespaces=("prod",))
    assert answered(world, "w", {"--gpus": "1", "--user": "bob"}).change.kind == "quota"
    world.queue("org", users=("ann",)).queue("below", "org")
    assert answered(world, "v", {"--gpus": "1", "--user": "bob"}).change.kind == "quota"
    assert answered(world, "u", {"--gpus": "1", "--user": "ann"}).change.sentence == "submit it to queue 'anns'"


def test_elastic_work_is_told_of_the_pods_that_it_starts_with() -> None:
    world = World().queue("default", gpu_limit=1_000)
    change = answered(world, "w3", {"--gpus": "1", "--pods": "4", "--min-pods": "2"}).change
    assert change.sentence == "let it start with 1 pod instead"
    assert change.command == "kaiwo set w3 min-pods=1"


def test_shares_on_several_devices_are_told_of_devices() -> None:
    answer = answered(World(), "w5", {"--fraction": "0.5", "--devices": "12"})
    assert answer.answer == "w5 is waiting: it asks for 12 devices on one node, but the largest node has 8 devices"
    assert answer.obstacles[0].remedy == "ask for 8 devices or fewer; waiting does not help"
    assert answer.change.sentence == "ask for 8 devices per pod instead"
    assert answer.change.command == "kaiwo set w5 devices=8"


def test_whole_gpus_that_others_may_use_are_told_of_gpus() -> None:
    change = answered(World(), "w6", {"--gpus": "12", "--shared": ""}).change
    assert change.sentence == "ask for 8 GPUs per pod instead"
    assert change.command == "kaiwo cancel w6 && kaiwo submit w6 --gpus 8 --shared ..."
    world = World(gpus_per_node=2)
    for number in range(2):
        world.submit(f"half-{number}", fraction_milli=700)
    world.settle()
    change = answered(world, "w7", {"--gpus": "2", "--shared": "", "--priority": "0"}).change
    assert change.sentence == "ask for a fraction of 0.3 of each of 2 GPUs instead"
    assert change.command == "kaiwo set w7 fraction=0.3"


def test_the_door_makes_of_whole_shared_gpus_what_is_taken_for_them_here() -> None:
    assert (SHARED_MILLI, TIME_SLICING) == SHARED_WHOLE


def test_work_with_one_named_sub_group_is_set_and_that_with_several_is_changed_in_its_file() -> None:
    world = World().queue("default", gpu_limit=1_000)
    replica, worker = {"name": "replica", "pods": 2}, {"name": "worker", "pods": 1}
    for name, groups, sentence, command in (
        ("w", [replica], "ask for 1 pod instead", "kaiwo set w pods=1"),
        ("v", [replica, worker], "", ""),
    ):
        ((workload, _),) = parse({"name": name, "gpus": 1, "subGroups": groups}).submissions
        world.tell(WorkloadChanged(workload)).settle()
        change = why(world.state, f"default/{name}", world.policy, world.now_s).change
        assert change is not None
        assert sentence in change.sentence
        assert change.command == command or change.kind != "smaller-size"
        if command:
            assert apply_change({"pods": 1}, workload, 0, []).roles[0].count == 1


def test_another_model_is_set_and_keeps_the_size() -> None:
    world = World()
    answer = answered(world, "m", {"--gpus": "2", "--model": "H100"})
    assert answer.change.command == "kaiwo set m model=MI300X"
    changed = apply_change(proposed_fields(answer), world.state.workloads["default/m"], 0, [])
    assert (changed.roles[0].request.gpus, changed.roles[0].request.gpu_models) == (2, ("MI300X",))
    any_model = apply_change({"gpuModels": None}, changed, 0, [])
    assert (any_model.roles[0].request.gpus, any_model.roles[0].request.gpu_models) == (2, ())
    two = apply_change({"gpuModels": "MI300X,MI250X"}, changed, 0, [])
    assert two.roles[0].request.gpu_models == ("MI250X", "MI300X")


def test_the_flags_of_the_command_line_are_the_ones_that_are_read_here() -> None:
    known = {flag for parameter in submit.params if isinstance(parameter, click.Option) for flag in parameter.opts}
    assert {"--pods", "--min-pods", "--devices", "--fraction", "--gpu-memory", "--queue", "--model"} <= known
