"""Random small programs, and judges that run each of them several ways."""
