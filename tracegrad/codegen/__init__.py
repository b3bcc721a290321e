"""Loop IR to source text."""
