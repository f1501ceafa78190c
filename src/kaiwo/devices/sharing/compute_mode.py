"""NVIDIA's compute mode: whether a GPU serves the MPS server alone.

In:    a GPU's UUID.   Out: the mode it is in now.
Never: fails for want of rights: without root the mode stays as it is.

In the exclusive mode a process that leaves its MPS variables out gets no GPU at all, instead of all of it.
"""

DEFAULT, EXCLUSIVE_PROCESS = 0, 3


def set_mode(uuid: str, mode: int) -> bool:
    """True when the GPU is in that mode now."""
    try:
        import pynvml
    except ImportError:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        if pynvml.nvmlDeviceGetComputeMode(handle) != mode:
            pynvml.nvmlDeviceSetComputeMode(handle, mode)
        return True
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
