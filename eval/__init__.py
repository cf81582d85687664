"""Running real nodes on one machine: for the demonstration, the cluster tests and the evaluation."""
