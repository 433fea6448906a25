"""The paper's tables and figures, from stored runs or new ones. The grids are package data."""
