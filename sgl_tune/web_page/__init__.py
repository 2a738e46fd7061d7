"""HTML pages without network or libraries, in light and dark, for wide and narrow screens."""
