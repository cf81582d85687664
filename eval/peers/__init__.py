"""What people use instead of BaseFS, on the same nodes and in the same run."""
