"""The points of plugins around a cycle: starts, resources, monitoring and notifications."""
