"""What each isolation grade protects against: the table that the docs show and `bench.gpu` tests.

An escape is something that a tenant may try, or that a bug in its program may do. `held`: the other tenants are not
affected. `open`: they may be. An escape that is not listed under a grade does not exist there.
"""

from collections.abc import Mapping
from typing import Literal

Verdict = Literal["held", "open"]

ESCAPES: Mapping[str, str] = {
    "more-memory": "allocate more than the share has",
    "memory-variable": "take the memory limit out of the environment",
    "more-threads": "ask for all compute units in the environment",
    "another-device": "ask for the other devices of the machine",
    "leave-service": "take all MPS variables out of the environment",
    "own-service": "start an MPS daemon of one's own and connect to that",
    "crash": "write to an illegal address on the GPU",
    "kill-neighbour": "kill a neighbour's process, as another user",
    "change-mode": "set the GPU's compute mode, as another user",
    "kill-service": "kill the MPS server, as the same user",
    "command-service": "kill the MPS server or command its daemon, as another user",
}

GUARANTEES: Mapping[str, Mapping[str, Verdict]] = {
    "mps": {
        "more-memory": "held",
        "memory-variable": "open",
        "more-threads": "open",
        "another-device": "held",
        "leave-service": "held",
        "own-service": "held",
        "crash": "open",
        "kill-neighbour": "held",
        "change-mode": "held",
        "kill-service": "open",
        "command-service": "held",
    },
    "time-slicing": {
        "more-memory": "open",
        "more-threads": "open",
        "another-device": "open",
        "own-service": "open",
        "crash": "held",
        "kill-neighbour": "held",
        "change-mode": "held",
    },
}
