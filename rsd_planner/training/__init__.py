"""How a draft is trained for a target: frames, what the target says of them, objectives, the run, its validation."""
