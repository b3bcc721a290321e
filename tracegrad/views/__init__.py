"""What tracer and aliasing pass share: families, versions, creation kinds, legality."""
