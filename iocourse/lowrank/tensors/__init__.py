"""Low rank of torch tensors: the passes in torch or as Triton kernels, one step of autograd around them."""
