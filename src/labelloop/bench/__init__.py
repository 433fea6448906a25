"""The researcher's side: experiments, grids of experiments, and their tables."""
