"""The settings of the API server, read once and frozen."""

from pathlib import Path

import msgspec

STATIC = Path(__file__).parent / "static"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Settings(msgspec.Struct, frozen=True):
    home: str  # where the token and the log are
    host: str = "127.0.0.1"  # the address to listen on
    names: tuple[str, ...] = ()  # further names under which people reach it
    static: str = str(STATIC)
    streams: int = 200  # the most open streams of all clients together
    streams_of_person: int = 50
    agent_token_file: str = ""  # empty: KAIWO_HOME/agent-token
    partitions: str = ""  # off | dry-run | on; empty: as it was
    body_bytes: int = 1_000_000
    body_s: float = 30.0  # a body must have arrived by then
    writes_per_s: float = 200.0
    writes_burst: float = 1000.0
    audit_bytes: int = 10**9  # of the audit; the oldest records go first
    audit_keep_s: int = 730 * 86_400
    keep_past_s: int = 30 * 86_400  # how long the past of ended work is kept

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return self.host in LOOPBACK_NAMES or self.host.startswith("127.")
