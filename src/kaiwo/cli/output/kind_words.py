"""A kind of request in words."""

from kaiwo.api.views.fragments import KindRoomView
from kaiwo.model.amounts import count, cpus, thousandths


def kind_words(kind: KindRoomView) -> str:
    """`2 GPUs (MI300X), 16 CPUs`."""
    gpus = count(kind.gpus, "GPU") if kind.gpu_milli == 1000 else f"{thousandths(kind.gpu_milli)} GPU"
    processors = f", {cpus(kind.cpu_milli)}" if kind.cpu_milli else ""
    models = f" ({' or '.join(kind.models)})" if kind.models else ""
    return f"{gpus}{models}{processors}"
