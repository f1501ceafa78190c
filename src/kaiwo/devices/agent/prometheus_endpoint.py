"""Serve /metrics for Prometheus and /healthz for the kubelet's probe.

NVIDIA GPUs have the names and labels of dcgm-exporter, AMD GPUs those of AMD's device-metrics-exporter, so that
existing dashboards work. Other metrics are named `kaiwo_*`.
"""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kaiwo.devices.agent_messages import GpuSample, Sample
from kaiwo.devices.inventory import Inventory, PhysicalGpu

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves on its own thread. The text is made on request, so it costs nothing without requests."""

    def __init__(self, host: str, port: int, metrics: Callable[[], str], problem: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._respond(200, metrics())
                elif path == "/healthz":
                    text = problem()
                    self._respond(503 if text else 200, text or "ok\n")
                else:
                    self._respond(404, "ask for /metrics or /healthz\n")

            def log_message(self, *_: object) -> None:
                return

            def _respond(self, status: int, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", TEXT)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


Row = tuple[str, dict[str, str], int | float | None]
HELP: dict[str, tuple[str, str]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "Memory utilization (in %)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter", "Total number of single-bit volatile ECC errors."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Total number of double-bit volatile ECC errors."),
    "gpu_nodes_total": ("gauge", "Number of GPUs in the node."),
    "gpu_gfx_activity": ("gauge", "Graphics engine usage in percent."),
    "gpu_umc_activity": ("gauge", "Memory engine usage in percent."),
    "gpu_total_vram": ("gauge", "Total VRAM in MB."),
    "gpu_used_vram": ("gauge", "Used VRAM in MB."),
    "gpu_free_vram": ("gauge", "Free VRAM in MB."),
    "gpu_junction_temperature": ("gauge", "Hotspot temperature in Celsius."),
    "gpu_memory_temperature": ("gauge", "Memory temperature in Celsius."),
    "gpu_package_power": ("gauge", "Socket power in Watts."),
    "gpu_ecc_correct_total": ("gauge", "Correctable errors."),
    "gpu_ecc_uncorrect_total": ("gauge", "Uncorrectable errors."),
    "gpu_health": ("gauge", "1 when healthy, 0 when not."),
    "kaiwo_gpu_healthy": ("gauge", "1 when healthy, 0 when not."),
    "kaiwo_partition_memory_used_mib": ("gauge", "Device memory used by the processes of a partition."),
    "kaiwo_partition_busy_percent": ("gauge", "Compute units of a partition that its processes occupy."),
    "kaiwo_process_memory_used_mib": ("gauge", "Device memory of one process."),
    "kaiwo_process_busy_percent": ("gauge", "How much of a device one process keeps busy."),
    "kaiwo_gpu_oversubscribed": ("gauge", "1 when more processes or queues share a GPU than its hardware holds."),
}


def metrics_text(inventory: Inventory, sample: Sample) -> str:
    """All metrics in Prometheus' text format; an unknown value has no line."""
    rows: dict[str, list[str]] = {}
    for name, labels, value in _rows(inventory, sample):
        if value is not None:
            text = ",".join(f'{label}="{_escape(of)}"' for label, of in labels.items())
            rows.setdefault(name, []).append(f"{name}{{{text}}} {value}")
    lines = []
    for name, found in rows.items():
        kind, words = HELP[name]
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *found]
    return "\n".join(lines) + "\n"


def _rows(inventory: Inventory, sample: Sample) -> Iterator[Row]:
    known = {gpu.id: gpu for gpu in inventory.gpus}
    amd = [gpu for gpu in inventory.gpus if gpu.vendor == "amd"]
    if amd:
        yield "gpu_nodes_total", {"hostname": inventory.node}, len(amd)
    for number, one in enumerate(sample.gpus):
        gpu = known.get(one.id)
        if gpu is None:  # the devices have just changed; the next sample has them
            continue
        if gpu.vendor == "nvidia":
            yield from _nvidia(inventory.node, number, gpu, one)
        elif gpu.vendor == "amd":
            yield from _amd(inventory.node, number, gpu, one)
        yield from _ours(inventory.node, gpu, one)


def _nvidia(node: str, number: int, gpu: PhysicalGpu, sample: GpuSample) -> Iterator[Row]:
    order = str(number if gpu.order is None else gpu.order)
    labels = {
        "gpu": order, "UUID": gpu.serial, "pci_bus_id": f"0000{gpu.pci}".upper(), "device": f"nvidia{order}",
        "modelName": gpu.product, "Hostname": node,
    }  # fmt: skip
    reported, errors = sample.telemetry, sample.errors
    used = reported.memory_used_mib
    yield "DCGM_FI_DEV_GPU_UTIL", labels, reported.utilisation_percent
    yield "DCGM_FI_DEV_MEM_COPY_UTIL", labels, reported.memory_busy_percent
    yield "DCGM_FI_DEV_FB_USED", labels, used
    yield "DCGM_FI_DEV_FB_FREE", labels, None if used is None else gpu.memory_mib - used
    yield "DCGM_FI_DEV_GPU_TEMP", labels, reported.temperature_c
    yield "DCGM_FI_DEV_POWER_USAGE", labels, reported.power_w
    yield "DCGM_FI_DEV_XID_ERRORS", labels, sample.xids[-1] if sample.xids else 0
    yield "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", labels, errors.corrected
    yield "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels, errors.uncorrected


def _amd(node: str, number: int, gpu: PhysicalGpu, sample: GpuSample) -> Iterator[Row]:
    """A partitioned GPU has its sensors once, under its first partition, as in AMD's exporter."""
    labels = {
        "gpu_id": str(number), "gpu_partition_id": "0", "card_model": gpu.product or gpu.model,
        "gpu_compute_partition_type": (gpu.compute_mode or "spx").lower(), "hostname": node,
        "serial_number": gpu.serial,
    }  # fmt: skip
    reported, errors = sample.telemetry, sample.errors
    used = reported.memory_used_mib
    yield "gpu_gfx_activity", labels, reported.utilisation_percent
    yield "gpu_umc_activity", labels, reported.memory_busy_percent
    yield "gpu_total_vram", labels, gpu.memory_mib
    yield "gpu_used_vram", labels, used
    yield "gpu_free_vram", labels, None if used is None else gpu.memory_mib - used
    yield "gpu_junction_temperature", labels, reported.temperature_c
    yield "gpu_memory_temperature", labels, reported.memory_temperature_c
    yield "gpu_package_power", labels, reported.power_w
    yield "gpu_ecc_correct_total", labels, errors.corrected
    yield "gpu_ecc_uncorrect_total", labels, errors.uncorrected
    yield "gpu_health", labels, int(sample.health == "healthy")


def _ours(node: str, gpu: PhysicalGpu, sample: GpuSample) -> Iterator[Row]:
    base = {"node": node, "gpu": gpu.id}
    yield "kaiwo_gpu_healthy", {**base, "model": gpu.model}, int(sample.health == "healthy")
    yield "kaiwo_gpu_oversubscribed", base, int(bool(sample.oversubscribed))
    for part in sample.partitions:
        yield "kaiwo_partition_memory_used_mib", {**base, "partition": part.id}, part.memory_used_mib
        yield "kaiwo_partition_busy_percent", {**base, "partition": part.id}, part.busy_percent
    for use in sample.processes:
        labels = {"node": node, "device": use.device, "pid": str(use.pid)}
        yield "kaiwo_process_memory_used_mib", labels, use.memory_mib
        yield "kaiwo_process_busy_percent", labels, use.busy_percent


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
