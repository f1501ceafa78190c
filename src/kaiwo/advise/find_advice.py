"""Advice for a cluster: candidates that the forward run confirms, the largest gain first.

In:    a question.   Out: an AdviceAnswer; equal questions give equal answers.
Never: advice without a gain that was found by `decide` itself, on a copy of the cluster.
"""

from kaiwo.advise.advice import Advice, AdviceAnswer, AdviceKind, NodeMode
from kaiwo.advise.candidates import candidates
from kaiwo.advise.verify_advice import AdviceQuestion, Verifier


def find_advice(question: AdviceQuestion) -> AdviceAnswer:
    verifier = Verifier(question)
    found: list[Advice] = []
    tried = 0
    is_whole = True
    for candidate in candidates(question, verifier.arrivals):
        if not question.may_go_on():
            is_whole = False
            break
        tried += 1
        gain = verifier.gain(candidate.trial)
        if gain is not None:
            found.append(Advice(candidate.kind, candidate.subject, candidate.change, gain))
    is_whole &= question.may_go_on()
    return AdviceAnswer(tuple(_best(found)), tried, tried - len(found), is_whole)


def _best(found: list[Advice]) -> list[Advice]:
    """Of equal kind and aim the best one: the same quota from another queue, or another node, is no other advice."""
    ranked = sorted(found, key=lambda each: (-each.gain.saved_wait_s, -each.gain.saved_gpu_s, each.kind, each.subject))
    best: dict[tuple[AdviceKind, str], Advice] = {}
    for each in ranked:
        aim = each.change.mode if isinstance(each.change, NodeMode) else each.subject
        best.setdefault((each.kind, aim), each)
    return list(best.values())
