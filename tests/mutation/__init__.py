"""Mutation by machine: every reference changed in one place at a time, and every change put to its check."""
