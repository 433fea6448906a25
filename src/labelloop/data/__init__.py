"""Where rows come from (step 1 of 5)."""
