"""Sentences about levels of the network: which domain comes closest, and which looser level would do."""

from kaiwo.model.amounts import amount
from kaiwo.model.obstacle import LevelShort, Obstacle
from kaiwo.model.plan import DomainChoice


def no_domain_with_room(o: Obstacle) -> str:
    """`its 16 pods must run in one leaf; leaf-3 comes closest, with room for 12`."""
    if not isinstance(o.facts, LevelShort):
        return f"no domain of a required level has room for {_pods(o)}"
    facts = o.facts
    if is_unknown_level(o):
        where = f"the topology '{facts.topology}' has" if facts.topology else "there is"
        known = f"; known levels: {', '.join(facts.known)}" if facts.known else ""
        return f"it must run in one {facts.level}, but {where} no such level on any node{known}"
    if o.have >= o.need:
        return f"{_pods(o)} must run in one {facts.level}; by number they would fit, but not all together on its nodes"
    if facts.is_too_small:
        return f"{_pods(o)} must run in one {facts.level}, but even an empty {facts.level} has room for only {o.have}"
    if facts.is_home:
        here = f"{facts.domain}, where its other pods run, has room for {o.have}"
        return f"{_pods(o)} must run in the same {facts.level}; {here}"
    closest = f"{facts.domain} comes closest, with room for {o.have}" if o.have else "none has room for any of them"
    return f"{_pods(o)} must run in one {facts.level}; {closest}"


def is_unknown_level(o: Obstacle) -> bool:
    """No node is in a domain of this level."""
    facts = o.facts
    return isinstance(facts, LevelShort) and (bool(facts.known) or (not facts.domain and o.have < o.need))


def looser_level(o: Obstacle) -> str:
    if isinstance(o.facts, LevelShort) and is_unknown_level(o):
        other = "name one of the known levels" if o.facts.known else "name another one"
        return f"check what is known of the network (kaiwo topology), or {other}"
    if isinstance(o.facts, LevelShort) and o.facts.is_home:
        return "wait for work there to end"
    if isinstance(o.facts, LevelShort) and o.facts.is_too_small:
        return "require a wider level (--required-level), only prefer this one, or ask for fewer pods"
    return "wait for work there to end, or require a wider level (--required-level), or only prefer this one"


def looser_level_in_kubernetes(o: Obstacle) -> str:
    if isinstance(o.facts, LevelShort) and (is_unknown_level(o) or o.facts.is_home):
        return looser_level(o)
    if isinstance(o.facts, LevelShort) and o.facts.is_too_small:
        return "set a wider kaiwo.ai/required-level, kaiwo.ai/preferred-level instead, or ask for fewer pods"
    return "wait for work there to end, or set a wider kaiwo.ai/required-level, or kaiwo.ai/preferred-level instead"


def _pods(o: Obstacle) -> str:
    pods = amount(o.need, "pods")
    return f"{pods} of '{o.subject}'" if o.subject else f"its {pods}"


def chosen_domain(choice: DomainChoice) -> str:
    """`its pods were placed in leaf-3, one of 4 domains of level leaf with room (score 812 of 1000: ...)`."""
    pods = f"the pods of '{choice.part}'" if choice.part else "its pods"
    if not choice.domain:
        return f"{pods} were placed in as few domains as possible, because no single one had room ({choice.strategy})"
    others = f"one of {choice.candidates} domains" if choice.candidates > 1 else "the only domain"
    terms = f"availability {choice.availability}, alignment {choice.alignment}, utilisation {choice.utilisation}"
    why = f"score {choice.score} of 1000: {terms}, performance {choice.performance}; {choice.strategy}"
    return f"{pods} were placed in {choice.domain}, {others} of level {choice.level} with room ({why})"
