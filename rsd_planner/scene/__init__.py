"""What the planner sees: camera frames and ego history at one instant. NumPy and SciPy only."""
