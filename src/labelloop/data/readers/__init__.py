"""One file a format, and read.py, which chooses among them."""
