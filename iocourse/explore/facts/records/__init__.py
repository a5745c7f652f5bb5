"""What records say: facts computed from a recorded run, nothing measured here."""
