"""Vectors and token vectors on disk, searched exactly or by way of candidates."""
