"""Tensors at the prompt: operations run at once, gradients by nodes that the tensors keep alive."""
