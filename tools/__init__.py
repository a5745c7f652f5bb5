"""What makes the course and its records, and is not part of the package: run from the root of a checkout.

`python -m tools.build` writes the notebooks and pages from their sources, `tools.bench WHAT` measures,
`python -m tools.heads` extracts the attention heads of a trained model. docs/guide/tools.md lists them.
"""
