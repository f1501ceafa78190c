"""Plugins."""

import msgspec


class PluginView(msgspec.Struct, frozen=True):
    """A plugin: where it comes from, whether it is confined, what it costs, and when it last failed."""

    name: str
    version: str
    state: str  # active | disabled | set-aside | not-allowed | refused
    kinds: list[str]
    run: str  # built-in | confined | trusted
    source: str
    sha256: str  # of its files
    grade: str  # of its confinement: full, or what the kernel lacks
    detail: str  # why it is not active
    calls: int  # of the worker
    mean_us: int
    longest_us: int
    faults: int
    last_fault: str
    last_fault_s: int  # 0: never
    dependencies: list[str]
    description: str
