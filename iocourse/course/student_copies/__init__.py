"""Students' copies of the lessons: create them, find them and update them to a new text."""
