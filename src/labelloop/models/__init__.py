"""Networks, and nothing but networks."""
