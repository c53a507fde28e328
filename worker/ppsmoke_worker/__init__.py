"""The worker beside a node: one process, one device, one contiguous range of a model's blocks."""
