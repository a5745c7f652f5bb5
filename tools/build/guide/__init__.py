"""The instructor's guide to the exercises: what is said of each, what was recorded, and the page of both."""
