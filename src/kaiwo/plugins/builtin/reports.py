"""Built-in reports that an administrator switches on: samples and notices as lines of JSON."""

import msgspec

from kaiwo.plugins.edge_contract import MonitoringSample, Notice


class JsonSamples:
    """Write each sample of the cluster as a line of JSON."""

    name, version = "json-samples", "1"

    def sink(self, sample: MonitoringSample) -> str:
        return msgspec.json.encode(sample).decode()


class JsonNoticesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    only: tuple[str, ...] = ()  # codes of notices; empty: all
    queues: tuple[str, ...] = ()  # only of these queues; empty: all


class JsonNotices:
    """Write notices as lines of JSON, and post them where the setting `deliverTo` says."""

    name, version = "json-notices", "1"
    Config = JsonNoticesConfig

    def __init__(self, config: JsonNoticesConfig = JsonNoticesConfig()) -> None:  # noqa: B008
        self._config = config

    def notification(self, notice: Notice) -> str:
        only, queues = self._config.only, self._config.queues
        if (only and notice.code not in only) or (queues and notice.queue not in queues):
            return ""
        return msgspec.json.encode(notice).decode()


PLUGINS = (JsonSamples, JsonNotices)
