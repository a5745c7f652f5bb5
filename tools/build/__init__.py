"""How lessons are made: their source, what every one must have, the notebooks, and running them."""
