"""The human in the loop: a local page that shows one doubtful row at a time and saves every decision."""
