"""The verbs that look: what they say, in every format."""

from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from kaiwo.api.views.topology import (
    DomainAccessView,
    NetworkTopologyView,
    TopologyDomainView,
    TopologyFindingView,
    TopologyLevelView,
    TopologyLinkView,
    TopologyView,
)
from kaiwo.api.views.workloads import ChangeView, ObstacleView, WhyView
from kaiwo.model.workload_record import WorkloadState
from tests.cli.conftest import Type
from tests.cli.stub_server import NOW, Stub, detail, gpu, problem_body, queue, workload


def test_status_is_one_screen_with_the_next_step_last(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("status")
    assert done.code == 0
    assert "here, local, virtual nodes, kaiwo" in done.out
    assert "50 %  2 of 4 in use" in done.out
    assert "1 waiting, 1 running" in done.out
    assert "812, 12 s ago: 1 started, 0 evicted" in done.out
    assert done.lines()[-1] == "1 workload waits; see why: kaiwo get workloads --state waiting"


def test_an_empty_cluster_tells_what_to_try(stub: Stub, kaiwo: Type) -> None:
    stub.workloads.clear()
    assert "try: kaiwo submit" in kaiwo("status").lines()[-1]


def test_status_json_is_the_apis_own(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("status", "-o", "json").json == msgspec.to_builtins(stub.status())
    assert yaml.safe_load(kaiwo("status", "-o", "yaml").out) == msgspec.to_builtins(stub.status())


def test_workloads_show_where_they_run_or_why_they_wait(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("get", "workloads")
    title, train, waits = done.lines()
    assert title.split() == ["NAME", "QUEUE", "STATE", "WANTS", "AGE", "WHERE", "OR", "WHY"]
    assert train.split() == ["train", "default", "running", "4", "GPUs", "14", "min", "node-1"]
    assert waits.endswith("needs 4 free GPUs on one node, the best has 2")


def test_wide_adds_columns_and_no_headers_takes_the_titles(stub: Stub, kaiwo: Type) -> None:
    assert "PRIORITY" in kaiwo("get", "w", "-o", "wide").lines()[0]
    assert kaiwo("get", "w", "--no-headers").lines()[0].startswith("train")


def test_names_can_be_given_to_other_verbs(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("get", "workloads", "-o", "name").out == "default/train\ndefault/eval\n"
    assert kaiwo("get", "gpus", "-o", "name").lines()[0] == "node-1/gpu-0"


def test_json_and_yaml_of_a_listing_are_the_apis_page(stub: Stub, kaiwo: Type) -> None:
    page = {"items": msgspec.to_builtins(list(stub.workloads.values())), "total": 2, "next": ""}
    assert kaiwo("get", "workloads", "-o", "json").json == page
    assert yaml.safe_load(kaiwo("get", "workloads", "-o", "yaml").out) == page


def test_filters_go_to_the_server(stub: Stub, kaiwo: Type) -> None:
    kaiwo("get", "workloads", "-l", "a=b", "-l", "c=d", "-q", "lab", "--state", "waiting,held", "--sort-by", "-gpus",
          "-u", "ada", "--limit", "7")  # fmt: skip
    query = stub.seen[0][2]
    assert query == {
        "label": ["a=b", "c=d"],
        "queue": ["lab"],
        "state": ["waiting,held"],
        "sort": ["-gpus"],
        "user": ["ada"],
        "limit": ["7"],
        "fold": ["true"],
    }


def test_living_and_over_stand_for_many_states(stub: Stub, kaiwo: Type) -> None:
    kaiwo("get", "workloads", "--state", "over")
    assert stub.seen[0][2]["state"] == ["succeeded,failed,cancelled"]


def test_sorting_by_age_puts_the_youngest_first(stub: Stub, kaiwo: Type) -> None:
    kaiwo("get", "workloads", "--sort-by", "age")
    kaiwo("get", "workloads", "--sort-by", "-age")
    sorts = [query["sort"] for _, path, query, *_ in stub.seen if path == "/workloads"]
    assert sorts == [["-submitted"], ["submitted"]]


def test_all_pages_are_read(stub: Stub, kaiwo: Type) -> None:
    stub.workloads = {w.name: w for w in (workload(f"w-{i}") for i in range(1203))}
    assert len(kaiwo("get", "workloads", "-o", "name", "--limit", "0").lines()) == 1203
    done = kaiwo("get", "workloads", "-o", "name")
    assert len(done.lines()) == 500
    assert "the first 500 of 1,203 workloads; --limit 0 shows all" in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["get", "things"], "unknown kind 'things'; choose from workloads, nodes, queues, gpus, cycles"),
        (["get", "nodes", "-q", "lab"], "nodes can't be selected by queue"),
        (["get", "queues", "-l", "a=b"], "queues can't be selected by label"),
        (["get", "workloads", "--state", "happy"], "'happy' is not a state of workloads; choose from waiting, held"),
        (["get", "workloads", "--sort-by", "colour"], "workloads can't be sorted by 'colour'; choose from name"),
        (["get", "workloads", "-l", "nonsense"], "'nonsense' is not a label; write it like key=value"),
        (["get", "nodes", "-u", "ada"], "nodes have no user"),
        (["get", "workloads", "-o", "xml"], "'xml' is not one of"),
        (["get", "workloads", "train", "-w"], "-w watches a list"),
        (["describe", "node"], "give the name of the node to describe"),
        (["get", "gpus", "gpu-1"], "'gpu-1' is not the name of a GPU; write it like node/gpu-0"),
        (["get", "cycles", "last"], "'last' is not a cycle number"),
        (["why", "a/b/c"], "'a/b/c' is not a workload name"),
    ],
)
def test_what_makes_no_sense_is_said(stub: Stub, kaiwo: Type, args: list[str], said: str) -> None:
    done = kaiwo(*args)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "args", [["get", "w", "nope"], ["describe", "nope"], ["describe", "node", "nope"], ["queue", "nope"],
             ["get", "gpus", "node-1/gpu-9"], ["get", "cycles", "5"], ["why", "nope"], ["logs", "nope"]]
)  # fmt: skip
def test_what_is_not_there_is_named(stub: Stub, kaiwo: Type, args: list[str]) -> None:
    stub.answers["GET /workloads/default/nope/logs"] = (404, problem_body("not-found", "there is no workload 'nope'"))
    done = kaiwo(*args)
    assert done.code == 1
    assert done.err.startswith("kaiwo: there is no ")


def test_nothing_to_list_is_said_on_stderr(stub: Stub, kaiwo: Type) -> None:
    stub.workloads.clear()
    assert kaiwo("get", "workloads") == (0, "", "there are no workloads\n")
    assert kaiwo("get", "workloads", "--state", "held").err == "no workloads match\n"


def test_queues_are_a_tree(stub: Stub, kaiwo: Type) -> None:
    stub.queues = [queue("zoo"), queue("default"), queue("a", "zoo", 1), queue("deep", "a", 2), queue("b", "zoo", 1)]
    names = [line[:9].rstrip() for line in kaiwo("queue", "--no-headers").lines()]
    assert names == ["default", "zoo", "  a", "    deep", "  b"]
    assert kaiwo("get", "queues", "-q", "a", "-o", "name").lines() == ["a", "deep"]
    assert kaiwo("queue", "--sort-by", "name", "-o", "name").lines() == ["a", "b", "deep", "default", "zoo"]


def test_one_queue_shows_its_arithmetic_and_its_work(stub: Stub, kaiwo: Type) -> None:
    out = kaiwo("queue", "default").out
    assert "takes workloads:  yes" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["GPUs", "4.5", "0.5", "8.5", "8", "-", "1", "4"] in rows
    assert any(row[:8] == ["memory", "16", "GiB", "0", "16", "GiB", "0", "64"] for row in rows)
    assert "kaiwo share default" in out
    assert "train" in out


@pytest.mark.parametrize(
    ("verb", "offered"),
    [
        ("get", ["--label", "--state", "--queue"]),
        ("nodes", ["--label", "--state"]),
        ("gpus", ["--state"]),
        ("queue", ["--queue"]),
    ],
)
def test_a_listing_offers_only_the_choices_that_it_takes(
    stub: Stub, kaiwo: Type, verb: str, offered: list[str]
) -> None:
    values = {"--label": "a=b", "--state": "free" if verb == "gpus" else "ready", "--queue": "lab"}
    shown = kaiwo(verb, "--help").out
    assert [option for option in values if option in shown] == offered
    for option, value in values.items() if verb != "get" else ():
        assert kaiwo(verb, option, value).code == (0 if option in offered else 2), option


def test_one_queue_is_named_once(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("queue", "-q", "lab", "-o", "name").lines() == ["lab", "vision"]
    done = kaiwo("queue", "default", "-q", "lab")
    assert done.code == 2
    assert "for one queue, use: kaiwo queue default" in done.err


def test_gpus_show_who_is_on_them(stub: Stub, kaiwo: Type) -> None:
    out = kaiwo("gpus", "--node", "node-1", "--free").out
    assert "node-1  gpu-0  MI300X  shared   0.5       96 GiB  train (0.5)" in out
    assert stub.seen[0][2] == {"node": ["node-1"], "free": ["true"], "limit": ["500"]}


def test_gpus_can_be_chosen_by_state_and_sorted(stub: Stub, kaiwo: Type) -> None:
    stub.nodes = [msgspec.structs.replace(stub.nodes[0], gpus=[
        gpu("node-1", 0), gpu("node-1", 1, healthy=False, reason="too hot"), gpu("node-1", 2, free_milli=250),
    ])]  # fmt: skip
    out = kaiwo("gpus", "--state", "unhealthy").lines()
    assert len(out) == 2
    assert out[1].endswith("too hot")
    names = kaiwo("gpus", "--sort-by", "free", "-o", "name").lines()
    assert names[0] == "node-1/gpu-2"


def test_nodes_show_their_state_in_words(stub: Stub, kaiwo: Type) -> None:
    out = kaiwo("nodes").out
    assert "node-2  cordoned  MI300X  0.5/2  4/128  16 GiB/2 TiB  1/110  new fan" in out
    assert kaiwo("nodes", "--state", "cordoned", "-o", "name").out == "node-2\n"


def test_describe_tells_all_of_a_workload(stub: Stub, kaiwo: Type) -> None:
    out = kaiwo("describe", "train").out
    for part in ("workload:    default/train", "time limit:  2 h", "python 'train me.py'", "main-0  node-1  running"):
        assert part in out
    assert kaiwo("describe", "workload", "train").out == out
    assert kaiwo("describe", "eval").lines()[-1] == "see what would start it: kaiwo why eval"


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("cancelled", 0, "ended:       1 min ago"),  # it may never have run
        ("cancelled", -15, "ended:       1 min ago, exit code -15"),
        ("succeeded", 0, "ended:       1 min ago, exit code 0"),
    ],
)
def test_describe_tells_an_exit_code_where_there_is_one(
    stub: Stub, kaiwo: Type, state: str, code: int, said: str
) -> None:
    view = workload("x", state)
    stub.workloads["default/x"], stub.details["default/x"] = view, detail(view, exit_code=code)
    assert said in kaiwo("describe", "x").lines()


def test_describe_tells_how_the_tenants_of_a_gpu_are_kept_apart(stub: Stub, kaiwo: Type) -> None:
    (half,) = stub.nodes[0].gpus[0].tenants
    turns = msgspec.structs.replace(half, grade="time-slicing")
    shared = msgspec.structs.replace(stub.nodes[0].gpus[0], tenants=[turns])
    stub.nodes = [msgspec.structs.replace(stub.nodes[0], gpus=[shared])]
    assert kaiwo("describe", "gpu", "node-1/gpu-0").lines()[-1].split() == [
        "train", "main-0", "running", "0.5", "96", "GiB", "time-slicing",
    ]  # fmt: skip


def test_describe_tells_all_of_the_others(stub: Stub, kaiwo: Type) -> None:
    assert "gpu-1  MI300X  free" in kaiwo("describe", "node", "node-1").out
    assert "takes workloads:" in kaiwo("describe", "queue", "lab").out
    assert "train     main-0  running  0.5    96 GiB" in kaiwo("describe", "gpu", "node-1/gpu-0").out
    cycle = kaiwo("describe", "cycle", "811")
    assert cycle.lines()[-1] == "decide this cycle again: kaiwo replay 811"
    assert "of waiting workloads with new reasons" in cycle.out
    assert kaiwo("describe", "node", "node-1", "-o", "json").json["name"] == "node-1"


def test_why_answers_first_and_proposes_last(stub: Stub, kaiwo: Type) -> None:
    stub.why = WhyView(
        "default/eval", WorkloadState.WAITING, "eval waits because no node has 4 free GPUs.",
        [ObstacleView("not-enough-free-gpus", "no node has 4 free GPUs", "ask for 2", 4, 2, "gpus", "")],
        2, 1, ChangeView("smaller-size", "researcher", "ask for 2 GPUs", "kaiwo submit eval --gpus 2"), "", NOW,
    )  # fmt: skip
    lines = kaiwo("why", "eval").lines()
    assert lines[0] == "eval waits because no node has 4 free GPUs."
    assert lines[4:6] == ["- no node has 4 free GPUs", "    remedy: ask for 2"]
    assert lines[-2:] == ["To start it now: ask for 2 GPUs", "    kaiwo submit eval --gpus 2"]
    assert kaiwo("why", "eval", "-o", "json").json == msgspec.to_builtins(stub.why)


@pytest.mark.parametrize(
    ("position", "ahead", "said"),
    [
        (1, 0, "It is number 1 in its queue; no workload is ahead of it."),
        (2, 1, "It is number 2 in its queue; 1 workload is ahead of it."),
        (4, 3, "It is number 4 in its queue; 3 workloads are ahead of it."),
    ],
)
def test_why_tells_the_place_in_the_queue(stub: Stub, kaiwo: Type, position: int, ahead: int, said: str) -> None:
    stub.why = WhyView("default/eval", WorkloadState.WAITING, "it waits", HELD, position, ahead, None, "", NOW)
    assert kaiwo("why", "eval").lines()[1] == said


@pytest.mark.parametrize(
    ("state", "answer", "said"),
    [
        ("waiting", "eval is not waiting: it has its pods on node-1", "eval is not waiting: it has its pods on node-1"),
        ("running", "It is not waiting: it is running.", "It is not waiting: it is running."),
    ],
)
def test_why_of_work_that_was_just_placed_is_one_line(
    stub: Stub, kaiwo: Type, state: str, answer: str, said: str
) -> None:
    stub.why = WhyView("default/eval", WorkloadState(state), answer, [], 0, 0, None, "it does not wait", NOW)
    assert kaiwo("why", "eval") == (0, f"{said}\n", "")


def test_why_does_not_say_of_work_that_runs_that_nothing_starts_it(stub: Stub, kaiwo: Type) -> None:
    answer, grows = "eval runs with 2 of 4 pods: no room", "It is already running, and will grow when there is room."
    stub.why = WhyView("default/eval", WorkloadState.WAITING, answer, HELD, 0, 0, None, grows, NOW)
    out = kaiwo("why", "eval").lines()
    assert out[0] == answer
    assert out[-1] == grows


HELD = [ObstacleView("held", "it is held", "kaiwo release eval", 0, 0, "", "")]


def test_why_says_when_nothing_helps_or_an_admin_must(stub: Stub, kaiwo: Type) -> None:
    stub.why = WhyView("default/eval", WorkloadState.WAITING, "it waits", HELD, 0, 0, None, "It is held.", NOW)
    assert kaiwo("why", "eval").lines()[-1] == "It is held."
    change = ChangeView("quota", "admin", "raise the quota of lab by 2", "")
    stub.why = msgspec.structs.replace(stub.why, change=change, no_change="")
    assert kaiwo("why", "eval").lines()[-1] == "To start it now (needs an administrator): raise the quota of lab by 2"


def test_a_name_with_odd_letters_stays_one_name(stub: Stub, kaiwo: Type) -> None:
    kaiwo("describe", "team/a?b#c%20d")
    assert stub.seen[0][1] == "/workloads/team/a%3Fb%23c%2520d"


def test_version_tells_both(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("version").lines()[1].endswith(f"at {stub.url}")
    assert kaiwo("version", "-o", "json").json["server"]["api"] == "v1"


def test_version_works_without_a_server(kaiwo: Type) -> None:
    done = kaiwo("version")
    assert done.code == 0
    assert "not running" in done.out


def domain(name: str, level: str, parents: list[str], **more: Any) -> TopologyDomainView:
    facts: dict[str, Any] = {
        "nodes": ["node-1", "node-2"], "gpu_milli": 16000, "free_gpu_milli": 500, "links": 0, "dead_links": 0,
        "link_mb_s": 0, "port_mb_s": 0, "oversubscription_milli": 0, "active_nodes": 0, "share_mb_s": 0, "used_by": [],
    }  # fmt: skip
    return TopologyDomainView(name=name, level=level, parents=parents, **(facts | more))


def network() -> TopologyView:
    leaf = domain(
        "leaf-1", "leaf", ["spine-1"], links=3, dead_links=1, oversubscription_milli=1334, share_mb_s=145_500,
        used_by=["a", "b", "c", "d"],
    )  # fmt: skip
    links = [
        TopologyLinkView("leaf-1", "spine-1", 50_000, 4, 1, "degraded", 75_000, ["a"]),
        TopologyLinkView("leaf-2", "spine-1", 50_000, 4, 0, "up", 0, []),
    ]
    levels = [TopologyLevelView("spine", "", 1, 2), TopologyLevelView("leaf", "", 1, 2)]
    found = [TopologyFindingView("missing-leaf", "leaf-9", "is not in the dump")]
    told = [TopologyFindingView("contradiction", "node-1", "is in leaf 3 by its label, and in leaf-5 by a dump")]
    fabric = NetworkTopologyView(
        "fabric", "a dump", "line 7 is odd", levels, [leaf, domain("spine-1", "spine", [])], links, found
    )
    return TopologyView(NOW, [fabric], told, ["topology racks: no such file"])


def test_a_topology_shows_who_may_use_which_domains(stub: Stub, kaiwo: Type) -> None:
    rules = [
        DomainAccessView(["leaf-1"], ["lab", "research"], ["team"]),
        DomainAccessView(["leaf-2"], ["lab"], []),
        DomainAccessView(["leaf-3"], [], []),
    ]
    (fabric,) = network().topologies
    stub.topology = TopologyView(NOW, [replace(fabric, access=rules)], [], [])
    lines = [line.strip() for line in kaiwo("topology").lines()]
    assert "leaf-1: only for queues lab, research and namespace team" in lines
    assert "leaf-2: only for queue lab" in lines
    assert "leaf-3: closed to all work" in lines


def test_a_topology_is_a_tree_with_links_findings_and_contradictions(stub: Stub, kaiwo: Type) -> None:
    stub.topology = network()
    done = kaiwo("topology")
    assert done.code == 0
    assert done.lines()[0] == "Topology fabric, from a dump: spine (1) > leaf (1), 2 nodes"
    rows = [line.split() for line in done.lines()]
    assert ["spine-1", "spine", "2", "16", "0.5"] in rows
    assert "  leaf-1" in done.out  # below its spine
    wanted = [
        "leaf-1",
        "leaf",
        "2",
        "16",
        "0.5",
        "3/4",
        "1.34:1",
        "145.5",
        "GB/s",
        "a,",
        "b,",
        "c",
        "and",
        "1",
        "other",
    ]
    assert wanted in rows
    assert ["leaf-1", "spine-1", "3/4", "50.0", "GB/s", "degraded", "50", "%", "a"] in rows
    assert "leaf-2" not in done.out
    assert "the last good version stays in force: line 7 is odd" in done.out
    assert "missing-leaf: leaf-9 is not in the dump" in done.out
    assert "contradiction: node-1 is in leaf 3 by its label, and in leaf-5 by a dump" in done.out
    assert "Not read: topology racks: no such file" in done.out
    assert "leaf-2" in kaiwo("topology", "fabric", "--links").out


def test_a_topology_in_json_is_the_apis_own(stub: Stub, kaiwo: Type) -> None:
    stub.topology = network()
    assert kaiwo("topology", "-o", "json").json == msgspec.to_builtins(stub.topology)
    assert kaiwo("topology", "fabric", "-o", "json").json == msgspec.to_builtins(stub.topology.topologies[0])


def test_an_unknown_topology_names_those_that_exist(stub: Stub, kaiwo: Type) -> None:
    stub.topology = network()
    done = kaiwo("topology", "fabrik")
    assert done.code == 1
    assert "there is no topology fabrik; there are: fabric" in done.err


def test_without_a_topology_the_next_step_is_shown(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("topology")
    assert "No topology is known" in done.out
    assert "kaiwo up --topology" in done.out + done.err
