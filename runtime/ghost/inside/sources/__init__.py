"""A compiled module that is not there is judged by its source, as its release ships it."""
