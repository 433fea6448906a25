"""Learners without a network, for inputs that are columns of numbers: of the given labels, and of the clean rows."""
