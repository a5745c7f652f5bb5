"""Ranks as processes."""


def between_processes(): ...
