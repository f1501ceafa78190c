"""Load the policy file, checked against the installed plugins."""

from pathlib import Path

from kaiwo.decide.cycle import BUILTIN
from kaiwo.manifests.policy_file import read_policy
from kaiwo.model.errors import ConfigError, PluginError
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.registry import Registry


def load_policy(path: str, plugins: Registry = BUILTIN) -> Policy:
    """Without a path, the default policy. Raises ConfigError for a policy that could not work."""
    if not path:
        return DEFAULT_POLICY
    try:
        policy = read_policy(Path(path).read_bytes(), path)
        plugins.active(policy)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); name a file with a policy", "policy") from error
    except PluginError as error:
        raise ConfigError(f"{path}: {error}", "policy") from error
    return policy
