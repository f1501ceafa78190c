"""The options of `kaiwo up` and `kaiwo scheduler`, and the folder where Kaiwo keeps its files.

Imports nothing heavy: the CLI reads this at every start.
"""

import os
from collections.abc import Mapping

import msgspec

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7600
SOCKET = "api.sock"  # in KAIWO_HOME: the CLI talks to Kaiwo through it


class ServerOptions(msgspec.Struct, frozen=True):
    home: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT  # 0: any free one
    tls_cert: str = ""  # empty: plain HTTP
    tls_key: str = ""  # empty: in the certificate's file
    insecure_http: bool = False  # True: other machines may connect without TLS
    agent_token_file: str = ""  # empty: KAIWO_HOME/agent-token
    policy: str = ""  # a file; empty: the default policy
    plugins: str = ""  # a file that allows plugins; empty: none but Kaiwo's own
    alerts: str = ""  # a file with alert rules and channels; empty: Kaiwo's own rules, told to nobody
    exporters: str = ""  # a file with exporters of GPUs to scrape; empty: none
    traces: str = ""  # address of OTLP over HTTP; empty: no traces
    log_level: str = "info"
    partitions: str = ""  # off | dry-run | on; empty: as before
    audit_keep: str = "730d"  # how long records of the audit are kept
    audit_size: str = "1G"  # how much of it is kept; the oldest goes first


class UpOptions(ServerOptions, frozen=True):
    demo: bool = False
    speed: float = 1.0  # virtual seconds in a second
    nodes: int = 0  # virtual nodes; 0: not given
    gpu_model: str = ""  # empty: not given
    cluster_file: str = ""  # empty: none
    topology: tuple[str, ...] = ()  # KIND=VALUE, beside the sources of the cluster file
    root: str = "/"  # where /sys and /dev of this machine are
    keep_for: str = "30d"  # how long ended work and its logs are kept
    keep_free: str = ""  # no work starts when the disk has less room; empty: 500 MB, or 5 % of a small disk
    log_size: str = "500M"  # of one run's log
    max_processes: int = -1  # of one run, with threads; 0: any number; -1: a quarter of what the machine can have
    keep_size: str = "5G"  # how much of it is kept; the oldest goes first


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
    webhook_client_ca: str = ""  # a file; whoever asks needs a certificate of this authority; empty: nobody does
    webhook_client_names: tuple[str, ...] = ()  # common names that such a certificate may have; empty: any
    agents: str = ""  # a ConfigMap that tells node agents which server to trust; empty: they share one token
    agents_port: int = 7601
    agent_account: str = ""  # namespace:name of the agents' service account
    kubernetes_tokens: bool = False  # people are known by their Kubernetes tokens, and their rights by RBAC
    is_guarded: bool = False  # the admission policies of the chart are installed
    grant_keys: str = ""  # name of the Secret and the ConfigMap with the keys of grants; empty: grants are not signed
    may_name_users: tuple[str, ...] = ()  # users and groups who may submit work for others
    trusted_controllers: tuple[str, ...] = ()  # service accounts, namespace:name, that make pods for others
    extender_port: int = 0  # for kube-scheduler; 0: none
    extends: str = "default-scheduler"  # the scheduler whose pods the extender places


def find_home(environ: Mapping[str, str]) -> str:
    """The folder with the state, the token and server.json: KAIWO_HOME, or the user's data directory."""
    if home := environ.get("KAIWO_HOME"):
        return os.path.abspath(os.path.expanduser(home))
    data = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "kaiwo")
