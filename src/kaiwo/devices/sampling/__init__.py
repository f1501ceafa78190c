"""Sample the GPUs of a machine every second, at little cost."""

from kaiwo.devices.sampling.sampler import Sampler

__all__ = ["Sampler"]
