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
