"""The paper (step 3 of 5): Algorithm 1, the correction network, the convex combination."""
