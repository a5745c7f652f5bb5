"""What pictures say: numbers, computed or read from a record. Nothing here draws."""
