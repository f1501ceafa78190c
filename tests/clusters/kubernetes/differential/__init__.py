"""The same generated pods through the real kube-scheduler and through ours: which nodes does each judge feasible?"""
