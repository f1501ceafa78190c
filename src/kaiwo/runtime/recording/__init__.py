"""Record time series: samples of the cluster, of what agents measured and of this process, every ten seconds."""
