"""Offline evaluation: a recording goes through scene and planner as in the vehicle, numbers and pictures come out."""
