"""What a user does, one file a verb, all over compose.py."""
