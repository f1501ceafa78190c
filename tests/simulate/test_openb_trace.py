"""The openb files are read as they are published, and a broken one is a sentence with its file and line."""

import gzip
from pathlib import Path

import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Request
from kaiwo.simulate.openb_trace import read_openb, variants_in
from tests.simulate.small_trace import NODES, PODS, write_trace

NODE, POD = "n-0,8000,1024,2,T4", "p-0,1000,64,1,500,"


def test_nodes_and_requests_keep_their_amounts(tmp_path: Path) -> None:
    pods = [POD, "p-1,2000,128,2,1000,T4|G2|T4", "p-2,3000,256,0,0,"]
    trace = read_openb(write_trace(tmp_path, ["n-1,16000,2048,1,G2", NODE], pods), "default")
    assert [(node.name, node.cpu_milli, len(node.gpus)) for node in trace.nodes] == [
        ("n-0", 8000, 2),
        ("n-1", 16000, 1),
    ]
    assert trace.nodes[0].gpus[0].model == "T4"
    assert trace.requests == (
        Request(1000, 64, 1, 500),
        Request(2000, 128, 2, 1000, gpu_models=("T4", "G2", "T4")),
        Request(3000, 256),
    )
    assert trace.gpu_milli == 3000
    assert trace.arrivals(42).order == (0, 1, 2)


def test_gzipped_files_are_read_too(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODE], [POD])
    plain = tmp_path / "openb_pod_list_default.csv"
    (tmp_path / "openb_pod_list_packed.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_openb(tmp_path, "packed").requests == (Request(1000, 64, 1, 500),)
    assert variants_in(tmp_path) == ["default", "packed"]


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ("p-0,1000,64,1,half,", "line 3: gpu_milli is 'half'; it must be a whole number"),
        ("p-0,1000,64,1,0,", "line 3: gpu_milli is 0; it must be from 1 to 1,000"),
        ("p-0,1000,64,1,1001,", "line 3: gpu_milli is 1,001; it must be from 1 to 1,000"),
        ("p-0,-1,64,1,500,", "line 3: cpu_milli is -1; it must be from 0"),
        ("p-0,1000,64,2,500,", "line 3: 2 GPUs of 500 milli each; several GPUs must be whole"),
        ("p-0,1000,64,3,1000,", "line 3: num_gpu is 3, and no node has more than 2 GPUs"),
        ("p-0,1000,64,1,500,H100", "line 3: gpu_spec is 'H100', and no node has such a GPU"),
        ("p-0,1000,64", "line 3: there are 3 values under 6 columns"),
        ('p-0,"1000,64,1,500,', "this is not CSV"),
    ],
)
def test_an_impossible_pod_is_named_by_file_and_line(tmp_path: Path, pod: str, says: str) -> None:
    write_trace(tmp_path, [NODE], [POD, pod])
    with pytest.raises(ConfigError) as error:
        read_openb(tmp_path, "default")
    assert says in str(error.value)
    assert "openb_pod_list_default.csv" in str(error.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODE], [POD])
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES.replace("model", "kind") + NODE + "\n")
    with pytest.raises(ConfigError, match=r"openb_node_list_gpu_node\.csv, line 1: there is no column model"):
        read_openb(tmp_path, "default")


@pytest.mark.parametrize(
    ("name", "says"), [("openb_node_list_gpu_node.csv", "lists no nodes"), ("openb_pod_list_default.csv", "no pods")]
)
def test_an_empty_list_is_refused(tmp_path: Path, name: str, says: str) -> None:
    write_trace(tmp_path, [NODE], [POD])
    (tmp_path / name).write_text(NODES if "node" in name else PODS)
    with pytest.raises(ConfigError, match=says):
        read_openb(tmp_path, "default")


def test_a_node_listed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lists node n-0 twice"):
        read_openb(write_trace(tmp_path, [NODE, NODE], [POD]), "default")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        read_openb(tmp_path / "nowhere", "default")
    with pytest.raises(
        ConfigError, match=r"neither openb_node_list_gpu_node\.csv nor openb_node_list_gpu_node\.csv\.gz"
    ):
        read_openb(tmp_path, "default")


def test_text_that_is_not_utf8_and_archives_that_are_none(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODE], [POD])
    (tmp_path / "openb_pod_list_default.csv").write_bytes(PODS.encode() + b"p-\xff,1,1,1,1,\n")
    with pytest.raises(ConfigError, match=r"line 2: this is not UTF-8"):
        read_openb(tmp_path, "default")
    (tmp_path / "openb_pod_list_default.csv.gz").write_bytes(b"no archive")
    (tmp_path / "openb_pod_list_default.csv").unlink()
    with pytest.raises(ConfigError, match=r"\.csv\.gz cannot be read"):
        read_openb(tmp_path, "default")


def test_orders_that_do_not_belong_to_the_lists(tmp_path: Path) -> None:
    trace = read_openb(write_trace(tmp_path, [NODE], [POD], order=[0, 1]), "default")
    with pytest.raises(ConfigError, match="row 1 is beyond the 1 pods"):
        trace.arrivals(42)
    with pytest.raises(ConfigError, match="no array default/7; its seeds are 42"):
        trace.arrivals(7)
    (tmp_path / "paper_orders.npz").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="cannot be read as an archive"):
        trace.arrivals(42)
