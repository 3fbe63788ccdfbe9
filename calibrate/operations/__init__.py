"""What one layer does, as plain functions of tensors: the kernels measure them and the stacks are made of them."""
