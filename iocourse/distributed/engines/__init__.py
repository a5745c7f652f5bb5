"""Engines that run the ranks: simulated in turns, on torch.distributed between threads, or as processes."""
