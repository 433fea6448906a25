"""What the methods share, as functions."""
