"""Reports and figures from stored runs (step 5 of 5). Drawing figures needs the extra `report`."""
