"""Alerts of a running Kaiwo: evaluate the rules on every sample, remember, and tell the channels."""
