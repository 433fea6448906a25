"""How many clean rows it takes."""

MIN_PAIRS = 20  # clean rows with a given label, to judge the rows that have one
ENOUGH = 20  # clean rows, to choose among learners
