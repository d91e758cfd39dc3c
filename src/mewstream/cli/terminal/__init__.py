"""The terminal of ``mewstream join``: what it shows, and the commands it understands."""
