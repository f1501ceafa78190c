"""Rules of Kubernetes for a pod's spec that change nothing here: what breaks them would be refused by any cluster.

In:    the spec of a Pod or of a pod template.   Out: nothing, or one ConfigError.
"""

from kaiwo.manifests.fields import Fields
from kaiwo.manifests.names import read_container_name, read_name
from kaiwo.manifests.places import show
from kaiwo.manifests.quantities import MAX_DURATION_S

SCHEDULERS = ("kaiwo-scheduler", "default-scheduler")  # ours, and what a cluster fills in
MAX_GRACE_S = (1 << 31) - 1
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def read_deadline_s(spec: Fields, default: int) -> int:
    """`activeDeadlineSeconds`: a number of seconds, and nothing else, as Kubernetes takes it."""
    return spec.integer("activeDeadlineSeconds", default, 1, MAX_DURATION_S)


def check_quiet(spec: Fields) -> None:
    """Fields that change nothing here, and still must be what they are called."""
    scheduler = spec.read("schedulerName", read_name, SCHEDULERS[0])
    if scheduler not in SCHEDULERS:
        spec.warn("schedulerName", f"names {show(scheduler)}, another scheduler; what is submitted here Kaiwo places")
    spec.integer("terminationGracePeriodSeconds", 0, 0, MAX_GRACE_S)
    spec.flag("enableServiceLinks")
    spec.choice("dnsPolicy", DNS_POLICIES)


def need_containers(spec: Fields) -> None:
    """A pod's spec that somebody wrote has containers."""
    containers = spec.items("containers")
    every = [*containers, *spec.items("initContainers")]
    names = [container.read("name", read_container_name, "") for container in every]
    for container, name in zip(every, names, strict=True):
        if not name or names.count(name) > 1:
            fact = "stands twice" if name else "is missing"
            raise container.place("name").error(f"{fact}; give each container a name of its own, such as main")
    if not containers:
        fact = "is empty" if spec.has("containers") else "is missing"
        raise spec.place("containers").error(f"{fact}; a pod needs a container, such as - {{name: main, image: train}}")
