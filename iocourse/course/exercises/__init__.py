"""The exercises of the course, one file a lesson; each file lists its own in `EXERCISES`."""
