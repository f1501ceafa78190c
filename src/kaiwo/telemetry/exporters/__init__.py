"""Exporters of others: read what AMD's and NVIDIA's serve about GPUs, in a process of its own."""
