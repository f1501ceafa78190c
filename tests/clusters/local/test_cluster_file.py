"""What a local cluster is made of, and what is said about a bad cluster file."""

import pytest

from kaiwo.clusters.local import read_cluster_file, virtual_nodes
from kaiwo.clusters.local.continue_state import are_virtual
from kaiwo.model.errors import ConfigError
from kaiwo.model.node import Taint


def test_the_default_is_eight_nodes_of_eight_on_two_leaves_under_one_spine() -> None:
    nodes = virtual_nodes()
    assert [node.name for node in nodes] == [f"node-{number}" for number in range(1, 9)]
    assert all(len(node.gpus) == 8 and {gpu.model for gpu in node.gpus} == {"MI300X"} for node in nodes)
    assert {(node.cpu_milli, node.memory_mib) for node in nodes} == {(192_000, 2 << 20)}
    leaves = [node.labels["topology.kaiwo.ai/leaf"] for node in nodes]
    assert leaves == ["leaf-1"] * 4 + ["leaf-2"] * 4
    assert {node.labels["topology.kaiwo.ai/spine"] for node in nodes} == {"spine-1"}
    assert nodes[0].labels["kubernetes.io/hostname"] == "node-1"
    assert nodes[0].labels["kaiwo.ai/gpu-model"] == "MI300X"
    assert are_virtual(nodes)


def test_many_nodes_sort_by_name() -> None:
    names = [node.name for node in virtual_nodes(120, "H100")]
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("node-001", "node-120")


def test_a_cluster_file_gives_every_detail() -> None:
    text = """
    nodes:
      - {name: big, count: 2, gpus: 4, model: MI325X, cpu: "500m", memory: 1.5Gi, labels: {zone: a}}
      - {name: mine, gpus: 1, model: X9, gpuMemory: 24Gi, taints: [{key: lab, effect: NoExecute}]}
      - {name: plain, gpus: 0, cpu: 2.5, memory: 512Mi}
    """
    one, two, mine, plain = read_cluster_file(text)
    assert (one.name, two.name) == ("big-1", "big-2")
    assert (one.cpu_milli, one.memory_mib, one.labels["zone"]) == (500, 1536, "a")
    assert [gpu.id for gpu in one.gpus] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert (mine.name, mine.gpus[0].model, mine.gpus[0].memory_mib) == ("mine", "X9", 24 * 1024)
    assert mine.taints == (Taint("lab", "", "NoExecute"),)
    assert (plain.gpus, plain.cpu_milli, "kaiwo.ai/gpu-model" in plain.labels) == ((), 2500, False)


def test_gpus_can_be_cut_from_the_start() -> None:
    (node,) = read_cluster_file("nodes: [{name: cut, gpus: 2, partition: cpx+nps4}]")
    assert [gpu.id for gpu in node.gpus[:2]] == ["gpu-0-p0", "gpu-0-p1"]
    assert len(node.gpus) == 16
    assert {(gpu.profile, gpu.milli, gpu.memory_mib) for gpu in node.gpus} == {("CPX+NPS4", 125, 24 * 1024)}
    assert node.gpus[8].parent == "gpu-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: [", "document 1, line 2: the YAML is malformed"),
        ("nodes:\n\t- name: a", "line 2: there is a tab"),
        ("\x00", "contains a NUL byte"),
        ("", "no document in it; write at least one, such as `nodes: [{name: big, count: 4, gpus: 8}]`"),
        ("hello", "text, not a mapping"),
        ("[]", "a list, not a mapping"),
        ("nodes: []", "nodes is empty; write at least one"),
        ("{}", "nodes is missing; write at least one"),
        ("nodes: 3", "nodes must be a list, not a number"),
        ("nodes: [3]", "nodes[0] must be a mapping, not a number"),
        ("nodes: [{}]\nnodes: [{}]", '"nodes" appears twice'),
        ("nodes: [{}]\n---\nnodes: [{}]", "has 2 documents"),
        ("node: [{}]", "node is not a known field; did you mean nodes?"),
        ("nodes: [{gpu: 3}]", "nodes[0].gpu is not a known field; did you mean gpus?"),
        ("nodes: [{gpus: many}]", 'nodes[0].gpus must be a whole number without quotes, not "many"'),
        ("nodes: [{gpus: -1}]", "nodes[0].gpus is -1, but must be 0 to 1,024"),
        ("nodes: [{count: 0}]", "nodes[0].count is 0, but must be 1 to 10,000"),
        ("nodes: [{count: 99999}]", "nodes[0].count is 99999"),
        ("nodes: [{name: a, count: 9999}, {name: b, count: 9999}]", "nodes has 19,998 nodes in all; at most 10,000"),
        ("nodes: [{model: MI9}]", 'nodes[0].model is "MI9", which is no known GPU model; write one of MI210'),
        ("nodes: [{model: 300}]", "nodes[0].model must be text, not a number"),
        ("nodes: [{name: Node_1}]", 'nodes[0].name is "Node_1", but a name must use lower-case letters'),
        ("nodes: [{name: a}, {name: a}]", "nodes[1].name makes a second node named a"),
        ("nodes: [{memory: lots}]", 'nodes[0].memory is "lots", which is not a quantity; write it as "16Gi"'),
        ("nodes: [{memory: -1}]", "nodes[0].memory is -1, which is negative"),
        ("nodes: [{memory: 64}]", "nodes[0].memory is 64, which is less than 1 MiB; write a unit"),
        ("nodes: [{cpu: 0}]", "nodes[0].cpu is 0"),
        ("nodes: [{memory: 0}]", "nodes[0].memory is 0"),
        ("nodes: [{cpu: .inf}]", "not a finite number"),
        ("nodes: [{taints: [{key: a, effect: Never}]}]", 'nodes[0].taints[0].effect is "Never"; write NoSchedule'),
        ("nodes: [{taints: [{effect: NoExecute}]}]", "nodes[0].taints[0].key is missing"),
        ("nodes: [{taints: [{key: a, efect: NoExecute}]}]", "nodes[0].taints[0].efect is not a known field"),
        ("nodes: [{labels: {a: 1}}]", "nodes[0].labels.a must be text, not a number; put it in quotes"),
        ("nodes: [{labels: {'a b': x}}]", 'nodes[0].labels has the key "a b"'),
        ("nodes: [{labels: {zone: a b}}]", 'nodes[0].labels.zone is "a b", but a label'),
        ("nodes: [{labels: {zone: ½}}]", 'nodes[0].labels.zone is "½", but a label'),
        (f"nodes: [{{labels: {{zone: {'x' * 300}}}}}]", "nodes[0].labels.zone is"),
        ("nodes: [{taints: [{key: ''}]}]", 'nodes[0].taints[0].key has the key ""'),
        ("nodes: [{taints: [{key: a, value: b c}]}]", 'nodes[0].taints[0].value is "b c"'),
        ("nodes: [{model: '', gpuMemory: 24Gi}]", 'nodes[0].model is "", which is no known GPU model'),
        ("nodes: [{model: my gpu, gpuMemory: 24Gi}]", 'nodes[0].model is "my gpu"'),
        (
            "nodes: [{count: 10000, gpus: 1024, partition: CPX+NPS4}]",
            "nodes has 10,000 nodes and up to 8,192 devices on one; the two multiplied may be at most 1,000,000",
        ),
        ("nodes: [{partition: TPX}]", 'nodes[0].partition is "TPX", which MI300X cannot be cut into; write one of SPX'),
        ("nodes: [{model: H100, partition: CPX}]", 'is "CPX", which H100 cannot be cut into; leave it out'),
    ],
)
def test_a_bad_cluster_file_gets_one_clear_sentence(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_cluster_file(text, "cluster.yaml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml")
    assert "\n" not in str(caught.value)


def test_bad_flags_name_themselves() -> None:
    with pytest.raises(ConfigError, match="--nodes is 0"):
        virtual_nodes(0)
    with pytest.raises(ConfigError, match=r'--gpu-model is "GTX", which is no known GPU model; write one of .*H200'):
        virtual_nodes(1, "GTX")
