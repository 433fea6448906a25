"""The labels that a run returns, how good they are, and labels refitted without training."""
