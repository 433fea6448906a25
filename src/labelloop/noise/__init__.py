"""Labels -> noisy labels (step 2 of 5)."""
