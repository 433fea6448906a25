"""The methods (step 3 of 5)."""
