"""The options of `kaiwo up` and `kaiwo scheduler`, and the folder where Kaiwo keeps its files.

Imports nothing heavy: the CLI reads this at every start.
"""

import os
from collections.abc import Mapping

import msgspec

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7600


class ServerOptions(msgspec.Struct, frozen=True):
    home: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT  # 0: any free one
    tls_cert: str = ""  # empty: plain HTTP
    tls_key: str = ""  # empty: in the certificate's file
    agent_token_file: str = ""  # empty: KAIWO_HOME/agent-token
    policy: str = ""  # a file; empty: the default policy
    partitions: str = ""  # off | dry-run | on; empty: as before


class UpOptions(ServerOptions, frozen=True):
    demo: bool = False
    speed: float = 1.0  # virtual seconds in a second
    nodes: int = 0  # virtual nodes; 0: not given
    gpu_model: str = ""  # empty: not given
    cluster_file: str = ""  # empty: none
    root: str = "/"  # where /sys and /dev of this machine are


class SchedulerOptions(ServerOptions, frozen=True):
    kubeconfig: str = ""  # empty: KUBECONFIG, the pod's own files, or ~/.kube/config
    context: str = ""  # empty: the current one
    scheduler: str = "kaiwo-scheduler"  # the name that pods ask for
    leader_elect: bool = True  # False: the caller makes sure that no other replica schedules here
    lease_name: str = ""  # empty: the scheduler's name
    lease_namespace: str = ""  # empty: that of the pod, or of the context
    dcm_config: str = ""  # namespace/name of the ConfigMap with the profiles of AMD's Device Config Manager
    host_names: tuple[str, ...] = ()  # names under which people reach Kaiwo, such as that of its Service
    webhooks: str = ""  # name of the Service, the Secret and the configurations; empty: no webhooks
    webhook_port: int = 9443
    agents: str = ""  # a ConfigMap that tells node agents which server to trust; empty: they share one token
    agents_port: int = 7601
    agent_account: str = ""  # namespace:name of the agents' service account
    may_name_users: tuple[str, ...] = ()  # users and groups who may submit work for others
    extender_port: int = 0  # for kube-scheduler; 0: none
    extends: str = "default-scheduler"  # the scheduler whose pods the extender places


def find_home(environ: Mapping[str, str]) -> str:
    """The folder with the state, the token and server.json: KAIWO_HOME, or the user's data directory."""
    if home := environ.get("KAIWO_HOME"):
        return os.path.abspath(os.path.expanduser(home))
    data = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "kaiwo")
