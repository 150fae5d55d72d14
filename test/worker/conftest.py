import os

os.environ["OMP_NUM_THREADS"] = "1"  # small models are slowed down by threads that wait for each other
