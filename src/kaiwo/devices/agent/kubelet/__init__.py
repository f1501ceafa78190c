"""What the agent does for the kubelet: device plugin v1beta1, pod resources v1."""
