"""One command for the day a GPU is there: what the 10B target costs on it, beside what it could cost at best."""
