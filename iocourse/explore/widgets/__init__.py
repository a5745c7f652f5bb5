"""The explorers: each a kind of `Explorer` with controls of `controls`, and under `@explorer` the function
that makes it, or its picture where there are no widgets. `explorer` is what every one of them is, with its
JavaScript and CSS beside it.
"""
