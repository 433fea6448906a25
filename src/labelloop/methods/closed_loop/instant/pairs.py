"""How many clean rows must also have a given label before they can judge the rows that have one."""

MIN_PAIRS = 20
