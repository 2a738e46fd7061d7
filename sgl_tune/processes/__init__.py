"""Processes of our own: started where nobody else's code is found, spoken to over pipes, gone when we are."""
