"""Roles for tests: small enough to see through, run by real masters in real processes."""
