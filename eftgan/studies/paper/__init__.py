"""The paper's tables and figures: what is printed there, and the runs that make ours."""
