"""Metrics of a daemon for Prometheus, with its official client library; off by default.

`convergence` measures the delay of remote changes, `collector` turns the answers of the `control socket` into metric
families, and `server` serves them over HTTP.
"""
