"""Drawing primitives, independent of attention.

- `picture`: the display list, its SVG and PNG renderers, the registry of figures, captions of recorded runs
- `palette`: colours, hatches and dash patterns
- `line_chart`: axes, lines with labels, and panels of several charts
- `shapes`: markers, bars and the square of N x N scores
- `graph_layout`: layered layout of a graph
- `text`: numbers as text, lines and tables as HTML
"""
