"""The closed forms of the schedules, many a file."""
