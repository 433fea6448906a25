"""Pretrained encoders: from texts or images as they came to features, or to a network that is trained further.

`open_encoder` finds one by name, `encode_rows` makes features with a cache on disk, `network.pretrained` trains one.
"""
