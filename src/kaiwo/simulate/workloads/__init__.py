"""Workloads for simulations: readers of published traces, a plain shape for your own, and a generator."""
