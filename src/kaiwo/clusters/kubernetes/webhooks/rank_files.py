"""Let the containers of pods with ranks see them: two variables and a volume of the downward API.

The variables refer to annotations that the Binding will write. The kubelet reads them when it starts a container, and
the files of the volume follow later changes of the annotations.
Never changes a template that does not ask for it, or one that has the volume or a variable of that name already.
"""

from typing import Any

from kaiwo.clusters.kubernetes.cache.rank_annotations import HOSTS_ANNOTATION, RANK_ANNOTATION, WORLD_ANNOTATION
from kaiwo.clusters.kubernetes.webhooks.admission_review import PatchStep
from kaiwo.clusters.kubernetes.webhooks.workload_objects import Json, PodTemplate, Strings, WorkloadObject
from kaiwo.manifests.kinds.annotations import OUR_PREFIX

ASKED = OUR_PREFIX + "rank-order"
VOLUME, FOLDER = "kaiwo-ranks", "/etc/kaiwo/ranks"
FILES = {"rank": RANK_ANNOTATION, "world-size": WORLD_ANNOTATION, "hosts": HOSTS_ANNOTATION}
VARIABLES = {"KAIWO_RANK": RANK_ANNOTATION, "KAIWO_WORLD_SIZE": WORLD_ANNOTATION}


def add_rank_files(work: WorkloadObject) -> list[PatchStep]:
    return [step for template in work.templates if _asks(work.annotations, template) for step in _steps(template)]


def _asks(own: Strings, template: PodTemplate) -> bool:
    """What is nearest to the pod counts."""
    return (own | template.annotations).get(ASKED) == "true"


def _steps(template: PodTemplate) -> list[PatchStep]:
    spec, path = template.spec, f"{template.path}/spec"
    if any(volume.get("name") == VOLUME for volume in _listed(spec, "volumes")):
        return []
    items = [{"path": name, "fieldRef": {"fieldPath": _field(key)}} for name, key in FILES.items()]
    steps = _append(spec, path, "volumes", [{"name": VOLUME, "downwardAPI": {"items": items}}])
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    for at, container in enumerate(_listed(spec, "containers")):
        below = f"{path}/containers/{at}"
        if not any(each.get("mountPath") == FOLDER for each in _listed(container, "volumeMounts")):
            steps += _append(container, below, "volumeMounts", [mount])
        known = {each.get("name") for each in _listed(container, "env")}
        variables = [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": _field(key)}}}
            for name, key in VARIABLES.items()
            if name not in known
        ]
        steps += _append(container, below, "env", variables)
    return steps


def _field(key: str) -> str:
    return f"metadata.annotations['{key}']"


def _listed(value: Json, name: str) -> list[Json]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _append(value: Json, path: str, name: str, added: list[Any]) -> list[PatchStep]:
    if not added:
        return []
    if not isinstance(value.get(name), list):
        return [{"op": "add", "path": f"{path}/{name}", "value": added}]
    return [{"op": "add", "path": f"{path}/{name}/-", "value": each} for each in added]
