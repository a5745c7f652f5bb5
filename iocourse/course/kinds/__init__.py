"""Kinds of exercises: a function for each kind, which makes an exercise from what is its own."""
