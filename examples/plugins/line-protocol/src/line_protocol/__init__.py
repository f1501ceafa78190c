"""Samples of the cluster in the line protocol: one line for the cluster, one for each queue."""

import msgspec

from kaiwo.plugins import MonitoringSample

NANOSECONDS = 1_000_000_000
ESCAPES = str.maketrans({" ": "\\ ", ",": "\\,", "=": "\\="})


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str = "kaiwo"  # the tag by which clusters are told apart
    with_queues: bool = True


class LineProtocol:
    name, version = "line-protocol", "1.0.0"
    Config = Config

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008
        self.config = config

    def sink(self, sample: MonitoringSample) -> str:
        tag, at = self.config.cluster.translate(ESCAPES), sample.at_s * NANOSECONDS
        fields = {
            "nodes": sample.nodes,
            "nodes_ready": sample.nodes_ready,
            "gpu_milli": sample.gpu_milli,
            "gpu_used_milli": sample.gpu_used_milli,
            "waiting": sample.waiting,
            "running": sample.running,
        }
        written = ",".join(f"{field}={value}i" for field, value in fields.items())
        lines = [f"kaiwo_cluster,cluster={tag} {written} {at}"]
        for queue in sample.queues if self.config.with_queues else ():
            name = queue.name.translate(ESCAPES)
            lines.append(f"kaiwo_queue,cluster={tag},queue={name} gpu_used_milli={queue.used_milli}i {at}")
        return "\n".join(lines)
