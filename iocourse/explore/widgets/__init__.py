"""The explorers, a file each: a kind of `Explorer` with controls of `shell.panel`, and under `@explorer` the
function that makes it, or its picture where there are no widgets.
"""
