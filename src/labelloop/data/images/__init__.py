"""Images: decoding, stores in memory or streamed from files, transforms."""
