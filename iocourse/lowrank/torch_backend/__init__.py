"""Low rank of torch tensors: the passes in torch, one step of autograd around them."""
