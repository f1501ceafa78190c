"""The scheduler-extender protocol, for clusters that keep kube-scheduler: Kaiwo answers only about GPUs."""
