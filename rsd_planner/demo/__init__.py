"""What the demo shows: a bundled drive made here, the bundled model, and the run that puts them together."""
