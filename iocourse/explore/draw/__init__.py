"""How a picture is drawn, without a word of attention.

`picture` is the display list and how it becomes SVG and PNG, `palette` its colours; `frame`, `chart` and
`panels` are axes, lines in one of them, and several side by side; `shapes` marks, bars and the square of
scores; `graph_layout` where vertices stand; `wording` and `html` numbers and lines as text; `record` where
recorded numbers come from; `figure` the list of all figures.
"""
