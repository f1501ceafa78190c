"""Admission webhooks, which the API server calls before it stores a workload or a queue."""
