"""A thin Kubernetes client: only the calls and the fields that Kaiwo uses."""

from kaiwo.clusters.kubernetes.client.connection import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential
from kaiwo.clusters.kubernetes.client.errors import ApiError, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.client.informer import Change, Informer
from kaiwo.clusters.kubernetes.client.kubeconfig import find_access
from kaiwo.clusters.kubernetes.client.resource import Resource

__all__ = [
    "ApiError",
    "Change",
    "Client",
    "ClusterAccess",
    "Credential",
    "Informer",
    "Resource",
    "StandbyError",
    "UnreachableError",
    "find_access",
]
