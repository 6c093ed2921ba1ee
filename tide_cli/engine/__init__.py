"""The engine room: how SGLang is started, asked and extended."""
