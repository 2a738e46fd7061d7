"""A reader a store. Each knows its library's layout, and what that library asks of an entry."""
