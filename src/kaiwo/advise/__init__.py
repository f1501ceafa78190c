"""What could be better: requests that fit what work uses, changes of the cluster, nodes to add. Each of them is tried.

In:    measured use, a cluster state, forecasts.   Out: values with the gain that a forward run found.
Never: changes anything, or advises a way around a limit.
"""
