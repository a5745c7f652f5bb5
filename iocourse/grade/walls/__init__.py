"""What keeps a submission's process apart: bubblewrap, a filter of system calls, limits."""
