"""The lowered IR: scalar statements over flat buffers; knows nothing of tensors."""
