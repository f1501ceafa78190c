"""A small openb-shaped trace, written into a folder, for tests that need no data from outside."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def write_trace(
    folder: Path, nodes: Sequence[str], pods: Sequence[str], order: Sequence[int] | None = None, seed: int = 42
) -> Path:
    """Rows as CSV; by default every pod arrives once, in the order of the list, and the first node wins ties."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "openb_node_list_gpu_node.csv").write_text(NODES + "".join(f"{row}\n" for row in nodes))
    (folder / "openb_pod_list_default.csv").write_text(PODS + "".join(f"{row}\n" for row in pods))
    arrivals = np.array(range(len(pods)) if order is None else order, np.uint16)
    rank = np.arange(len(nodes), dtype=np.uint16)
    np.savez(folder / "paper_orders.npz", **{f"default/{seed}": arrivals, f"rank/default/{seed}": rank})
    return folder
