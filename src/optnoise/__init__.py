"""Numerically optimal truncated additive noise for differential privacy."""
