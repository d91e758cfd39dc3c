"""Where programs find their settings: the space file, profiles, tokens, and the connection that they make of them."""
