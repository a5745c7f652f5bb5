"""What a check says beyond right and wrong: where an error arose, what it may mean, which case is running."""
