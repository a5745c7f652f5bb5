"""The exercises of the course, one file per lesson; each file lists its exercises in `EXERCISES`."""
