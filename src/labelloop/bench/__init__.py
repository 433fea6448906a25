"""What a researcher does: experiments, grids of them, and the tables they make."""
