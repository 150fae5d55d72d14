"""The decoding loop. It knows a target by its protocol only."""
