"""Who has signed a bundle, and whom to believe."""
