"""Rules that every lesson must satisfy, checked in its source and its saved outputs."""
