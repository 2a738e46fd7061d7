"""One reader per kind of store. A reader knows its library's layout, and when the library uses an entry."""
