"""The explorers: controls around a figure each.

A new one is one file here: a kind of `Explorer`, with controls from `panel`, and under `@explorer` the
function that makes it, or its picture where there are no widgets.
"""
