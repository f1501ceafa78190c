"""Plugins of every kind that keep all rules; their answers do not depend on what a cycle has placed so far."""

import os

import numpy as np

from kaiwo.plugins import CPU, TOP_SCORE, Reason


class PreferLastNode:
    name, version, weight = "prefer-last-node", "1", 1000

    def applies(self, want):
        return want.gpus > 0

    def score(self, view, want, nodes):
        return TOP_SCORE * nodes // max(1, len(view.nodes.names) - 1)


class AvoidFirstNode:
    name, version, reason, is_static, depends_on = "avoid-first-node", "1", Reason.PLUGIN, True, ("gpus",)

    def filter(self, view, want, nodes):
        return np.array([view.nodes.names[row] != "node-0" for row in nodes])


class PreferOddDevices:
    name, version, weight = "prefer-odd-devices", "1", 10

    def gpu_score(self, view, want, node, columns):
        return 100 * (columns % 2)


class LastDevice:
    name, version = "last-device", "1"

    def allocation(self, view, want, node, columns):
        return -columns


class LastQueueFirst:
    name, version = "last-queue-first", "1"

    def queue_order(self, view, queues, next_need, next_since_s):
        return -np.asarray(queues)


class LongNamesFirst:
    name, version = "long-names-first", "1"

    def workload_order(self, workload, policy):
        return (-len(workload.name), workload.priority)


class SpareAll:
    name, version = "spare-all", "1"

    def victim_filter(self, view, victims, policy):
        return np.zeros(len(victims), np.bool_)


KINDS = (
    "PreferLastNode",
    "AvoidFirstNode",
    "PreferOddDevices",
    "LastDevice",
    "LastQueueFirst",
    "LongNamesFirst",
    "SpareAll",
)


class MostFreeCpu:
    """Depends on all that was placed."""

    name, version, weight = "most-free-cpu", "1", 1000

    def score(self, view, want, nodes):
        return TOP_SCORE * view.of(nodes).free[:, CPU] // view.nodes.cpu_size[nodes]


class CountsOpenFiles:
    name, version, weight = "counts-open-files", "1", 1

    def score(self, view, want, nodes):
        found = 0
        for fd in range(1 << 14):  # the scheduler may have many files open
            try:
                os.fstat(fd)
            except OSError:
                continue
            found += fd > 2
        return np.full(len(nodes), found)


class CountsVariables:
    name, version, weight = "counts-variables", "1", 1

    def score(self, view, want, nodes):
        return np.full(len(nodes), len(os.environ))


class CountsLabels:
    name, version, weight = "counts-labels", "1", 1

    def score(self, view, want, nodes):
        return np.array([len(view.nodes.nodes[row].labels) for row in nodes])


class ShortForOne:
    name, version, weight = "short-for-one", "1", 10

    def score(self, view, want, nodes):
        return np.zeros(1 if want.cpu_milli == 777 else len(nodes), np.int64)


class RaisesForOne:
    name, version, weight = "raises-for-one", "1", 10

    def score(self, view, want, nodes):
        if want.cpu_milli == 777:
            raise ValueError("not 777")
        return np.zeros(len(nodes), np.int64)


class ByTheHour:
    """Later, another node: nothing about the nodes has changed by then."""

    name, version, weight = "by-the-hour", "1", 1000

    def score(self, view, want, nodes):
        return np.where(nodes == view.now_s // 100, TOP_SCORE, 0)


class ByTheQueues:
    name, version, weight = "by-the-queues", "1", 1000

    def score(self, view, want, nodes):
        used = int(view.queue_used[:, 0].max()) // 1000
        return np.where(nodes == used, TOP_SCORE, 0)


class OpenByTheHour:
    name, version, reason, is_static = "open-by-the-hour", "1", Reason.PLUGIN, False

    def filter(self, view, want, nodes):
        return nodes == view.now_s // 100


class SilentByTheHour:
    """Says at every other cycle that it has nothing to say, and then all its scores are 0."""

    name, version, weight = "silent-by-the-hour", "1", 1000

    def is_silent(self, view, want):
        return view.now_s // 100 % 2 == 0

    def score(self, view, want, nodes):
        return np.where(nodes == view.now_s // 100, 0 if self.is_silent(view, want) else TOP_SCORE, 0)
