"""Turn obstacles into sentences, and find what would start a workload now."""

from kaiwo.explain.change_sentences import Proposal, propose_in_kubernetes, short_name
from kaiwo.explain.gang_sentences import below_minimum, kept_places
from kaiwo.explain.level_sentences import chosen_domain
from kaiwo.explain.obstacle_order import in_order_of_telling
from kaiwo.explain.obstacle_sentences import remedy, remedy_in_kubernetes, sentence
from kaiwo.explain.planned_start_sentences import planned_start, planned_when_made
from kaiwo.explain.priority_sentences import capped_priority
from kaiwo.explain.progress_sentences import progress
from kaiwo.explain.reservation_effect import ReservationEffect, reservation_effect
from kaiwo.explain.trial_submission import TrialSubmission, score_words, try_submission
from kaiwo.explain.why import Explained, Why, obstacles_of, protected, why
from kaiwo.model.amounts import amount

__all__ = [
    "Explained",
    "Proposal",
    "ReservationEffect",
    "TrialSubmission",
    "Why",
    "amount",
    "below_minimum",
    "capped_priority",
    "chosen_domain",
    "in_order_of_telling",
    "kept_places",
    "obstacles_of",
    "planned_start",
    "planned_when_made",
    "progress",
    "propose_in_kubernetes",
    "protected",
    "remedy",
    "remedy_in_kubernetes",
    "reservation_effect",
    "score_words",
    "sentence",
    "short_name",
    "try_submission",
    "why",
]
