"""The person in the loop: a local page that shows one doubtful row at a time and keeps what is decided."""
