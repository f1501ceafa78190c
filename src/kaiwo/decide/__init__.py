"""`decide(snapshot, policy) -> Plan`: the pure heart of Kaiwo."""

from kaiwo.decide.cycle import decide

__all__ = ["decide"]
