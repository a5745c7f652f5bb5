"""How the kernels are launched: from torch tensors to a grid of programs, as operators of PyTorch."""
