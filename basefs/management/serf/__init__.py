"""How Serf comes to a machine: `packages` of the system, or a `release` of its makers."""
