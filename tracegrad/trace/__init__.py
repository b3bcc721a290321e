"""User code to traced graph."""
