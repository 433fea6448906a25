"""Export (step 5): the corrections of a run in the format of its input, with a list of all changes.

Reads a run folder and its input, and never changes either.
"""
