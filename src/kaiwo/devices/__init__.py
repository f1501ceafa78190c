"""The GPUs that a machine really has: AMD, NVIDIA, and made-up ones for tests and demos."""

from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, Link, Partition, PhysicalGpu, Telemetry

__all__ = ["Inventory", "Link", "Partition", "PhysicalGpu", "Telemetry", "discover"]
