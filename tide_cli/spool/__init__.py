"""The spool: a bounded ring of the traffic's hidden states on disk, and its index."""
