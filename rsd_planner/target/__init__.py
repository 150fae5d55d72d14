"""The deliberative reasoner: an unmodified Alpamayo checkpoint, from pixels and ego history to logits and actions."""
