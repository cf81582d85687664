"""Metrics of a daemon for Prometheus, with its official client library; off by default.

`collector` turns the answers of the `control socket` into metric families and measures the delay of remote changes,
`server` serves them over HTTP.
"""
