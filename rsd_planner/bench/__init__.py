"""Measurement: what each way of decoding costs and says on the same frames, and where a draft looks."""
