"""Names of gangs that people write on pods, templates and owners.

In:    labels, annotations and the few fields of a pod's spec.   Out: the name that was meant, or nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_GROUP, PREFIXES
from kaiwo.clusters.kubernetes.gangs.metadata import Template, TemplateSpec, Texts, WorkloadReference

FLAGS = ("true", "false")  # on a Job `kaiwo.ai/gang` may also say whether its pods are one


def read_annotation(name: str, places: Iterable[Texts]) -> str:
    """One of our annotations, from the nearest place that has it."""
    for place in places:
        for prefix in PREFIXES:
            if value := place.get(prefix + name):
                return value
    return ""


def read_gang_name(places: Iterable[Texts]) -> str:
    wish = read_annotation("gang", places)
    return "" if wish in FLAGS else wish


def roles_in_gang(names: Mapping[str, tuple[str, ...]], roles: Collection[str]) -> frozenset[str]:
    """Of an owner's roles, those whose pods are in one gang with pods of `roles`: they name the same one, or none.

    Two halves of one owner would wait for each other for ever if each counted the other's pods as its own.
    """
    ours = {names[role] for role in roles if role in names}
    return frozenset(role for role, named in names.items() if not ours or named in ours)


def read_gang_names(template: Template | None, annotations: Texts) -> tuple[str, ...]:
    """Every gang that pods made from this template name; all empty when they belong to their owner's."""
    template = template or Template()
    spec = template.spec or TemplateSpec()
    workload = spec.workload_ref or WorkloadReference()
    return (
        read_gang_name((template.annotations, annotations)),
        template.labels.get(KUEUE_GROUP, ""),
        (spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
        workload.name or "",
        workload.pod_group or "",
    )
