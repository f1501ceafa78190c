"""Reasons into sentences, and what would start a workload now."""

from kaiwo.explain.amounts import amount
from kaiwo.explain.in_kubernetes import propose_in_kubernetes, remedy_in_kubernetes
from kaiwo.explain.planned import planned_start
from kaiwo.explain.sentences import remedy, sentence
from kaiwo.explain.why import Explained, Proposal, Why, obstacles_of, why

__all__ = [
    "Explained",
    "Proposal",
    "Why",
    "amount",
    "obstacles_of",
    "planned_start",
    "propose_in_kubernetes",
    "remedy",
    "remedy_in_kubernetes",
    "sentence",
    "why",
]
