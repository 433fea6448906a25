"""The paper's tables and figures, from stored runs or made anew. The grids are data of the package."""
