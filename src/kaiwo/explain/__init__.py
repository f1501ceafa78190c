"""Reasons into sentences, and what would start a workload now."""

from kaiwo.explain.sentences import amount, remedy, sentence
from kaiwo.explain.why import Explained, Proposal, Why, obstacles_of, why

__all__ = ["Explained", "Proposal", "Why", "amount", "obstacles_of", "remedy", "sentence", "why"]
