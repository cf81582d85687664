"""Metrics of a daemon for Prometheus, with its official client library; off unless somebody asks for them.

convergence  how long the changes of others took to come here
collector    what the control socket can tell, as metric families
server       HTTP
"""
