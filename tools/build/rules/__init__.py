"""What every lesson must keep to, read off its source and its saved outputs."""
