"""What the demo model can do, measured in the world it was trained in: figures, model card, a page of scenes."""
