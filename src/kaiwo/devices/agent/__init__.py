"""The node agent: telemetry and health every second, and the kubelet's device plugin."""
