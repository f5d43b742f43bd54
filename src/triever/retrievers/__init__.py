"""One file for each system that a person can hold."""
