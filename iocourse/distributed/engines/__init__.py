"""Engines that run the ranks: simulated one at a time, or with torch.distributed in threads or processes."""
