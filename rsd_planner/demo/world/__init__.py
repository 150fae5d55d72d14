"""A procedural driving world: scenes from seeds, an ego that drives them, pictures, reasoning labels, a dataset."""
