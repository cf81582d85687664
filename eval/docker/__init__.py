"""Nodes in Docker containers: the engine, the image, and a network of them."""
