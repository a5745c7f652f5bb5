"""Pages that are made when the site is built: each function returns the text of one."""
