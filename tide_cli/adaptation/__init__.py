"""Policies of the adaptation loop. Pure: figures are arguments, decisions are values."""
