"""TIDE: LLM serving that gets faster on the user's own traffic, on one machine."""

__version__ = "0.1.0"
