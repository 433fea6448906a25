"""Pretrained encoders: turn raw texts or images into features, or provide a network for fine-tuning.

`open_encoder` finds one by name, `encode_rows` makes features with a cache on disk, `network.pretrained` trains one.
"""
