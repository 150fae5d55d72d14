"""The model apart from the node: another process (or thread) that plans, and what the two say to each other."""
