"""Whole nodes in virtual time: one seed is one run, and a run that fails can be played again (docs/simulation.md)."""
