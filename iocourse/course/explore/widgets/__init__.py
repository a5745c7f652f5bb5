"""Interactive explorers: subclasses of `explorer.Explorer`, registered with `@explorer`.

The registered function returns the widget, or its figure if widgets are not available. `controls` defines the
controls; explorer.js and explorer.css are the front end of all explorers.
"""
