"""The routine reasoner: draft networks and the memory of earlier reasonings."""
