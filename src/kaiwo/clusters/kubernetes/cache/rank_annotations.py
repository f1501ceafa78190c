"""Read and write the annotations with the rank of a pod, which are a part of its Binding.

The webhook lets containers see them, as variables and as files: see `webhooks.rank_files`. A variable is read when a
container starts, which is after the Binding. So each pod knows its rank although nobody knew it when it was created.
"""

from collections.abc import Mapping

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.workload import NO_RANK

RANK_ANNOTATION = OUR_PREFIX + "rank"
WORLD_ANNOTATION = OUR_PREFIX + "world-size"
HOSTS_ANNOTATION = OUR_PREFIX + "rank-hosts"  # one a line, in the order of ranks: a hostfile
MAX_HOSTS = 128  # in larger gangs, only the pod of rank 0 and those without a rank get the hosts of all


def rank_of(pod: CachedPod) -> int:
    """The rank of a bound pod."""
    text = pod.annotation(RANK_ANNOTATION)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else NO_RANK


def rank_annotations(rank: int, hosts: Mapping[int, str]) -> dict[str, str]:
    """What one pod gets. `hosts`: by rank, those of its gang."""
    if not hosts:
        return {}
    found = {WORLD_ANNOTATION: str(len(hosts))}
    if rank != NO_RANK:
        found[RANK_ANNOTATION] = str(rank)
    if len(hosts) <= MAX_HOSTS or rank <= 0:
        found[HOSTS_ANNOTATION] = "".join(f"{hosts[each]}\n" for each in sorted(hosts))
    return found
