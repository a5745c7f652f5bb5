"""How a picture is drawn, without a word of attention.

`picture` is the display list, how it becomes SVG and PNG, the list of all figures and what is said of a
recorded run; `palette` its colours; `line_chart` axes, lines in them, and several charts side by side;
`shapes` marks, bars and the square of scores; `graph_layout` where vertices stand; `text` numbers and lines
as text and HTML.
"""
