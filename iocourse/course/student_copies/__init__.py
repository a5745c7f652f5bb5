"""The student's own copies of the lessons: how they are made, found again, and brought up to date."""
