"""Measurements: protocols, problems and scripts that run on a GPU."""
