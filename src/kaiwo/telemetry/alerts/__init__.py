"""Alert rules over the time series: what fires, what is told of it, and the file that remembers both."""
