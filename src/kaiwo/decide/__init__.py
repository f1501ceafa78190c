"""`decide(snapshot, policy) -> Plan`: the pure core of Kaiwo."""

from kaiwo.decide.cycle import decide

__all__ = ["decide"]
