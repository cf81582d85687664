"""What the network costs and how soon it is: the scenarios of `make bench-net`, one module each."""
