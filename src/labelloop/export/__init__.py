"""What leaves LabelLoop (step 5): a run's corrections in the form of its input, with every change on record.

Reads a run folder and its input; never changes either.
"""
