"""The trainer: a process of its own that turns stored samples into better drafts."""
