"""Looking at values while a compiled function runs."""
