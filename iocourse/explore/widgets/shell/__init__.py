"""What every explorer stands on: its base, its controls, and the page's side of both."""
