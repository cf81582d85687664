"""The experiments of `python -m eval`: those of the paper and its evaluation, each scaled by one size."""
