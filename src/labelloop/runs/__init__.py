"""What happened (step 4 of 5): the run folder and the metrics. Nothing here imports torch."""
