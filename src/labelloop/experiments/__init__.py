"""The composition root: data -> noise -> method -> result."""
