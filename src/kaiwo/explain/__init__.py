"""Turn obstacles into sentences, and find what would start a workload now."""

from kaiwo.explain.change_sentences import Proposal, propose_in_kubernetes
from kaiwo.explain.obstacle_sentences import remedy, remedy_in_kubernetes, sentence
from kaiwo.explain.planned_start_sentences import planned_start
from kaiwo.explain.why import Explained, Why, obstacles_of, why
from kaiwo.model.amounts import amount

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
