"""`tide demo`: an appliance of its own, traffic for it, and the old draft measured against the new one."""
