"""How many clean rows need a given label too, before they say anything of the rows that have one."""

MIN_PAIRS = 20
