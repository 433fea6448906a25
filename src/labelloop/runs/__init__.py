"""The run folder and the metrics (step 4 of 5). Nothing here imports torch."""
