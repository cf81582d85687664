"""The Serf program: whether a suitable one is installed, and installing one.

`program` has the surface and uses the package manager of the system, `release` downloads and verifies a release of its
makers.
"""
