"""Settings as data: what all methods share, how a dict becomes a configuration, and the recipes."""
