"""Plugins that misbehave at each point inside a cycle, after a good answer. They run in a worker process only."""

import os
import signal
import sys
import time

import numpy as np

from kaiwo.plugins import Reason

GOOD_ANSWERS = 1
KINDS: dict = {}
GOOD = {
    "filter": lambda view, want, nodes: np.ones(len(nodes), np.bool_),
    "score": lambda view, want, nodes: np.full(len(nodes), 500),
    "gpu_score": lambda view, want, node, columns: np.full(len(columns), 500),
    "allocation": lambda view, want, node, columns: columns,
    "queue_order": lambda view, queues, next_need, next_since_s: next_since_s,
    "victim_filter": lambda view, victims, policy: np.ones(len(victims), np.bool_),
    "domain_rule": lambda view, domains, policy: np.ones(len(domains), np.bool_),
    "placement_strategy": lambda view, domains, terms, weights: np.full(len(domains), 500),
}
ASKED_ONCE = ("queue_order", "victim_filter", "domain_rule", "placement_strategy")  # in a cycle: they misbehave at once


class Hostile:
    version, weight, reason, is_static, divides_like = "1", 50, Reason.PLUGIN, False, "balanced"
    calls = 0

    def answer(self, point, *arguments):
        self.calls += 1
        if self.calls <= GOOD_ANSWERS and point not in ASKED_ONCE:
            return GOOD[point](*arguments)
        return self.misbehave(*arguments)


def kind(point, words):
    """A point, a kind of misbehaviour there, and what the report about it says."""

    def make(function):
        name = function.__name__
        cls = type(name, (Hostile,), {"name": name.replace("_", "-"), "words": words, "point": point})
        cls.misbehave = lambda self, *arguments: function(*arguments)
        setattr(cls, point, lambda self, *arguments: self.answer(point, *arguments))
        KINDS[name] = cls
        return cls

    return make


@kind("filter", "did not answer within")
def filter_hangs(view, want, nodes):
    while True:
        pass


@kind("filter", "returned what was not expected: an array of <U3")
def filter_answers_in_words(view, want, nodes):
    return np.array(["yes"] * len(nodes))


@kind("filter", "expected .* integers")
def filter_answers_for_other_nodes(view, want, nodes):
    return np.ones(len(nodes) + 1, np.bool_)


@kind("filter", "ended its process with status 0")
def filter_exits(view, want, nodes):
    os._exit(0)


@kind("filter", "raised TypeError: 'mappingproxy' object does not support item assignment")
def filter_labels_a_node(view, want, nodes):
    view.nodes.nodes[0].labels["dedicated"] = "mine"
    return np.ones(len(nodes), np.bool_)


@kind("filter", "raised AttributeError: 'mappingproxy' object has no attribute 'clear'")
def filter_takes_what_a_node_offers(view, want, nodes):
    view.nodes.nodes[0].extended.clear()
    return np.ones(len(nodes), np.bool_)


@kind("queue_order", "raised TypeError: 'mappingproxy' object does not support item assignment")
def queue_order_gives_a_queue_models(view, queues, next_need, next_since_s):
    view.queues.queues[0].gpu_models["MI300X"] = 10**6
    return next_since_s


@kind("score", "MemoryError|did not answer within")
def score_keeps_more_with_every_answer(view, want, nodes):
    KINDS.setdefault("kept", []).append(np.ones(200 << 20, np.uint8))
    return np.full(len(nodes), 500)


@kind("score", "returned what was not expected: an array of >i8")
def score_answers_with_other_bytes_first(view, want, nodes):
    return np.full(len(nodes), 500, ">i8")


@kind("score", "raised")
def score_takes_modules_away(view, want, nodes):
    for name in list(sys.modules):
        if name not in ("sys", "builtins"):
            sys.modules[name] = None
    return __import__("numpy").full(len(nodes), 500)


@kind("score", "did not answer within")
def score_hangs_in_a_signal_handler(view, want, nodes):
    signal.signal(signal.SIGSEGV, lambda number, frame: time.sleep(60))
    sys.settrace(lambda frame, event, argument: time.sleep(60))
    return GOOD["score"](view, want, nodes)


@kind("gpu_score", "expected 0 to 1000")
def gpu_score_is_beyond_all_others(view, want, node, columns):
    return np.full(len(columns), 2**62)


@kind("gpu_score", "expected .* integers")
def gpu_score_is_of_devices_that_are_not_there(view, want, node, columns):
    return np.full(len(columns) + 3, 500)


@kind("gpu_score", "did not answer within")
def gpu_score_sleeps(view, want, node, columns):
    time.sleep(60)


@kind("allocation", "expected .* integers")
def allocation_ranks_by_nothing(view, want, node, columns):
    return np.full(len(columns), np.nan)


@kind("allocation", "returned what was not expected: an array of .O")
def allocation_ranks_by_endless_numbers(view, want, node, columns):
    return np.array([2**70] * len(columns))


@kind("allocation", "raised RecursionError")
def allocation_asks_itself(view, want, node, columns):
    return allocation_asks_itself.misbehave(None, view, want, node, columns)


@kind("allocation", "raised ValueError: .*read-only")
def allocation_gives_devices_away(view, want, node, columns):
    view.gpus[node] = 10**6
    return columns


@kind("queue_order", "expected .* rows of at most 64 integers")
def queue_order_is_a_million_wide(view, queues, next_need, next_since_s):
    return np.zeros((len(queues), 1_000_000), np.int8)


@kind("queue_order", "raised ValueError|expected .* integers")
def queue_order_has_no_width(view, queues, next_need, next_since_s):
    return np.zeros((len(queues), 0), np.int64)


@kind("queue_order", "expected .* integers")
def queue_order_is_a_cube(view, queues, next_need, next_since_s):
    return np.zeros((len(queues), 2, 2), np.int64)


@kind("queue_order", "did not answer within")
def queue_order_hangs(view, queues, next_need, next_since_s):
    while True:
        pass


@kind("victim_filter", "expected .* integers")
def victim_filter_names_more_than_there_are(view, victims, policy):
    return np.ones(len(victims) * 2, np.bool_)


@kind("victim_filter", "did not answer within")
def victim_filter_hangs(view, victims, policy):
    while True:
        pass


@kind("victim_filter", "raised ValueError: .*read-only")
def victim_filter_makes_all_work_cheap(view, victims, policy):
    victims.lost_gpu_s[:] = 0
    return np.ones(len(victims), np.bool_)


@kind("domain_rule", "raised ValueError: .*read-only")
def domain_rule_empties_domains(view, domains, policy):
    domains.gpu_used_milli[:] = 0
    return np.ones(len(domains), np.bool_)


@kind("domain_rule", "expected .* integers")
def domain_rule_answers_by_name(view, domains, policy):
    return dict.fromkeys(domains.names, True)


@kind("domain_rule", "ended its process with status 3")
def domain_rule_exits(view, domains, policy):
    os._exit(3)


@kind("placement_strategy", "expected 0 to 1000")
def placement_strategy_owes_points(view, domains, terms, weights):
    return np.full(len(domains), -1)


@kind("placement_strategy", "raised ValueError: .*read-only")
def placement_strategy_turns_the_weights(view, domains, terms, weights):
    weights[:] = weights[::-1].copy()
    return np.full(len(domains), 500)


@kind("placement_strategy", "did not answer within")
def placement_strategy_hangs(view, domains, terms, weights):
    time.sleep(60)
