"""Feeding data."""
