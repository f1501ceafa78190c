"""How `kaiwo up` was asked to start, and where Kaiwo keeps its files.

In:    flags and the environment, read once.   Out: one frozen value.
Never: imports anything heavy; the CLI reads this at every start.
"""

import os
from collections.abc import Mapping

import msgspec

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7600


class UpOptions(msgspec.Struct, frozen=True):
    """What the person who started Kaiwo asked for."""

    home: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT  # 0: any free one
    demo: bool = False
    speed: float = 1.0  # virtual seconds in a second
    nodes: int = 0  # virtual nodes; 0: not said
    gpu_model: str = ""  # empty: not said
    cluster_file: str = ""  # empty: none
    root: str = "/"  # where /sys and /dev of this machine are
    tls_cert: str = ""  # empty: plain HTTP
    tls_key: str = ""  # empty: in the certificate's file
    agent_token_file: str = ""  # empty: KAIWO_HOME/agent-token
    policy: str = ""  # a file; empty: the default policy
    partitions: str = ""  # off | dry-run | on; empty: as it was


class SchedulerOptions(msgspec.Struct, frozen=True):
    """How `kaiwo scheduler` was asked to start."""

    home: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    kubeconfig: str = ""  # empty: KUBECONFIG, the pod's own files, or ~/.kube/config
    context: str = ""  # empty: the current one
    scheduler: str = "kaiwo-scheduler"  # the name that pods ask for
    leader_elect: bool = True  # False: nobody else schedules here, which is for the caller to know
    lease_name: str = ""  # empty: the scheduler's name
    lease_namespace: str = ""  # empty: that of the pod, or of the context
    tls_cert: str = ""  # empty: plain HTTP
    tls_key: str = ""  # empty: in the certificate's file
    agent_token_file: str = ""  # empty: KAIWO_HOME/agent-token
    policy: str = ""  # a file; empty: the default policy
    partitions: str = ""  # off | dry-run | on; empty: as it was
    dcm_config: str = ""  # namespace/name of the ConfigMap with the profiles of AMD's Device Config Manager
    host_names: tuple[str, ...] = ()  # of a Service: names under which people reach it, beside addresses
    webhooks: str = ""  # name of the Service, the Secret and the configurations; empty: no webhooks
    webhook_port: int = 9443
    agents: str = ""  # a ConfigMap that tells node agents whom to trust; empty: they come with one token for all
    agents_port: int = 7601
    agent_account: str = ""  # namespace:name of the agents' service account
    may_name_users: tuple[str, ...] = ()  # users and groups who bring work for others
    extender_port: int = 0  # for kube-scheduler; 0: none
    extends: str = "default-scheduler"  # whose pods the extender places


def find_home(environ: Mapping[str, str]) -> str:
    """The folder with the state, the token and server.json: KAIWO_HOME, or the user's data directory."""
    if home := environ.get("KAIWO_HOME"):
        return os.path.abspath(os.path.expanduser(home))
    data = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "kaiwo")
