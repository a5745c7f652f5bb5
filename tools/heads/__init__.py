"""The tools that made the data beside them. No lesson needs them."""
