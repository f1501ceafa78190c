// How tests and benchmarks start Chromium: without its own calls to the network.

export const FLAGS = [
  '--no-sandbox', // the tests may run as root, and open nothing but their own server
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
