"""The kubelet's side of the agent: device plugin v1beta1, pod resources v1."""
