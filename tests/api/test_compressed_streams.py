"""Streams are compressed for clients that ask for it, change by change, and all nodes of a cluster fit into one."""

import asyncio
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.api.presenters.node_view import NodeQuery, node_page
from kaiwo.model.events import NodeChanged, PodChanged, WorkloadChanged
from kaiwo.model.workload import Pod, Share
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from tests.api.fake_loop import FakeLoop, record
from tests.api.test_stream import serving
from tests.api.world import node
from tests.waiting import PATIENCE_S, run

NODES = "/api/v1/stream?view=nodes&limit=2000"


def test_a_stream_is_compressed_and_every_change_comes_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop(nodes=600)
        accepts = {"Accept-Encoding": "br, gzip;q=0.5"}
        async with serving(tmp_path, loop) as (client, _), client.stream("GET", NODES, headers=accepts) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.headers["vary"] == "accept-encoding"
            unzip, chunks = zlib.decompressobj(31), answer.aiter_raw()
            whole, size = b"", 0
            async with asyncio.timeout(PATIENCE_S):
                while b"event: reset" not in whole or not whole.endswith(b"\n\n"):
                    chunk = await anext(chunks)
                    whole, size = whole + unzip.decompress(chunk), size + len(chunk)
                assert whole.count(b'"agent":null') == 600, "every node is in the first event"
                assert size < len(whole) / 8
                loop.patch([NodeChanged(node("n-00007", gpus=4, cordoned=True))])
                change = b""
                while not change.endswith(b"\n\n"):
                    change += unzip.decompress(await anext(chunks))
            assert b"event: delta" in change
            assert change.count(b'"state":"cordoned"') == 1
            assert len(change) < 3000, "one node is told, not all"

    run(work())


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "br"])
def test_who_does_not_take_gzip_gets_plain_text(tmp_path: Path, accepted: str) -> None:
    async def work() -> None:
        loop, accepts = FakeLoop(nodes=1), {"Accept-Encoding": accepted}
        async with serving(tmp_path, loop) as (client, _), client.stream("GET", NODES, headers=accepts) as answer:
            assert "content-encoding" not in answer.headers
            seen, chunks = b"", answer.aiter_raw()
            async with asyncio.timeout(PATIENCE_S):
                while b"event: reset" not in seen:
                    seen += await anext(chunks)

    run(work())


def test_only_views_of_nodes_where_something_changed_are_made_again() -> None:
    loop = FakeLoop(nodes=3)
    overview = ClusterOverview(loop)
    first = node_page(overview, NodeQuery(limit=10)).items
    assert all(a is b for a, b in zip(first, node_page(overview, NodeQuery(limit=10)).items, strict=True))
    job = replace(record("job").workload, queue="default", user="ada")
    pod = Pod("default/job", "main-0", "n-00001", devices=(Share(first[1].gpus[0].id, 1000, 1000),))
    for event in (WorkloadChanged(job), PodChanged(pod), WorkloadChanged(replace(job, user="bob"))):
        before = node_page(overview, NodeQuery(limit=10)).items
        loop.patch([event])
        after = node_page(overview, NodeQuery(limit=10)).items
        assert after[0] is before[0]
        assert after[2] is before[2]
        assert (after[1] is before[1]) == (event == WorkloadChanged(job)), event
    tenant = node_page(overview, NodeQuery(limit=10)).items[1].gpus[0].tenants[0]
    assert (tenant.workload, tenant.user) == ("default/job", "bob")
