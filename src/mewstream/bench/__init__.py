"""A load generator that speaks plain v0.4 to any MEW gateway, and checks all that it gets.

It knows the wire and nothing of our gateway: another one is measured by the very same code.
"""
