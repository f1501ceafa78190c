"""Kaiwo's exceptions, as one tree.

    KaiwoError
    ├── ConfigError     what a person wrote is wrong: a manifest, a flag, a cluster file, a policy
    ├── RefusedError    valid, but a queue or the policy refuses it
    │   └── ForbiddenError  it is not theirs to change
    ├── NotFoundError   the named object does not exist
    ├── ClusterError    the world outside misbehaves: a store, a process, an API server
    │   └── DamagedFileError  a file is not as it was written; trying again does not help
    └── PluginError     a plugin cannot be loaded, or returned nonsense

A workload that cannot start is not an exception: see Obstacle. Messages name the object, the fact and the way out.
"""


class KaiwoError(Exception):
    """Anything Kaiwo raises on purpose."""


class ConfigError(KaiwoError):
    """What a person wrote is wrong; `field` names the place in their words."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class RefusedError(KaiwoError):
    """The input is valid, and a queue or the policy refuses it; `field` names what it refuses, if one field does."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ForbiddenError(RefusedError):
    """The object belongs to somebody else."""


class NotFoundError(KaiwoError):
    """The named object does not exist."""


class ClusterError(KaiwoError):
    """A store, a process or an API server did not do what it must."""


class DamagedFileError(ClusterError):
    """A file is not as it was written."""


class PluginError(KaiwoError):
    """A plugin cannot be loaded, or returned what its contract forbids."""
