"""Sign bundles, and check who has signed them."""
