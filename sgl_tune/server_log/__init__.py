"""A server's start as its log shows it: the memory of each rank, the death, and what would have helped."""
