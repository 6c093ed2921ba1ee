"""Published drafts: immutable versions on disk, and the checks a draft has to pass."""
