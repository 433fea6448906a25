"""LabelLoop."""
