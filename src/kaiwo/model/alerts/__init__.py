"""The words of alerts: rules, what fires, what keeps it quiet, and where it is told."""
