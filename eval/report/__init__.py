"""The report of `python -m eval`: plots and tables from the rows alone, the paper's beside ours."""
