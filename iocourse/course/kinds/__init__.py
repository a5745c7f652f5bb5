"""Kinds of exercises: one function per kind, which makes an exercise from the parts that a lesson passes."""
