from line_protocol import Config, LineProtocol

from kaiwo.plugins import MonitoringSample, QueueSample

SAMPLE = MonitoringSample(
    at_s=60, cycle=3, nodes=2, nodes_ready=1, gpu_milli=16_000, gpu_used_milli=500, waiting=4, running=1,
    queues=(QueueSample("lab a", 500, -1),),
)  # fmt: skip


def test_a_sample_becomes_a_line_for_the_cluster_and_one_for_each_queue() -> None:
    fields = "nodes=2i,nodes_ready=1i,gpu_milli=16000i,gpu_used_milli=500i,waiting=4i,running=1i"
    assert LineProtocol().sink(SAMPLE).splitlines() == [
        f"kaiwo_cluster,cluster=kaiwo {fields} 60000000000",
        "kaiwo_queue,cluster=kaiwo,queue=lab\\ a gpu_used_milli=500i 60000000000",
    ]


def test_queues_can_be_left_out_and_the_cluster_named() -> None:
    (line,) = LineProtocol(Config(cluster="a,b", with_queues=False)).sink(SAMPLE).splitlines()
    assert line.startswith("kaiwo_cluster,cluster=a\\,b nodes=2i")
