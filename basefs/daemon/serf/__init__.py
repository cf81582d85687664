"""The Serf program: whether a good one is installed, and installing one from packages or a release of its makers."""
