"""How a picture is drawn: the display list, its colours, axes, lines and panels. No attention in here."""
