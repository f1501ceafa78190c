"""Keep work off GPUs that cannot keep it apart from its neighbours as well as it asks."""

import numpy as np

from kaiwo.gpus.isolation import grade_of, whole_gpus
from kaiwo.model.isolation import meets
from kaiwo.model.node import Node
from kaiwo.model.reason import Reason
from kaiwo.model.request import Request
from kaiwo.plugins.contract import View
from kaiwo.snapshot.arrays import BoolArray, Rows


class GpuIsolation:
    """Obey the method of isolation that was asked for by name, and the least grade."""

    name, version, reason, is_static = "gpu-isolation", "1", Reason.GPU_ISOLATION, True
    depends_on = ("gpus", "gpu_milli", "gpu_mib", "partition", "isolation", "least_grade")

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """A node will do when one of its devices would; whole GPUs and partitions have the best grade there is."""
        if not (want.isolation or want.least_grade) or not want.gpus or want.is_exclusive:
            return np.ones(len(nodes), np.bool_)
        all_nodes = view.nodes.nodes
        return np.fromiter((_serves(all_nodes[row], want) for row in nodes), np.bool_, len(nodes))


def _serves(node: Node, want: Request) -> bool:
    """GPUs that are cut have no shares now: another matter, for they could be whole again."""
    grades = {(gpu.model, gpu.memory_mib): gpu for gpu in whole_gpus(node)}.values()
    found = (grade_of(want, gpu, node.labels) for gpu in grades)
    return any(grade and meets(grade, want.least_grade) for grade in found)
