"""GPUs of a machine: discovery, sampling, sharing, and the node agent."""

from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, Link, Partition, PhysicalGpu, Telemetry

__all__ = ["Inventory", "Link", "Partition", "PhysicalGpu", "Telemetry", "discover"]
