"""Admission webhooks: what the API server asks before it stores work or a queue."""
