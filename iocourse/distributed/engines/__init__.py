"""What moves the words of ranks: threads that take turns, gloo between threads, and real processes."""
