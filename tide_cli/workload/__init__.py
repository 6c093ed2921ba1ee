"""Prompts to send to an engine: made up by a seeded generator, or read from a file of the user's."""
