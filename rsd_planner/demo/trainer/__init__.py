"""How the demo target is trained: the forward pass with gradients, its stages, and the figures it reaches."""
