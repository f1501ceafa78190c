"""What free GPUs are worth to the mix of requests: prices of the kinds of requests, and values of nodes from them."""
