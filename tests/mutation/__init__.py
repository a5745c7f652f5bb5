"""Automatic mutation: change every reference in one place at a time and run its check on every change."""
