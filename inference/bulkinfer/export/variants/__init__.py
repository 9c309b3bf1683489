"""The same network in int8 or fp16, and proof that it answers alike."""
