"""Pages that need nothing else: no network, no library, light and dark, wide and narrow."""
