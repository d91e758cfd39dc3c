"""A load generator that speaks plain v0.4 to any MEW gateway, and checks everything it receives.

It uses nothing of our gateway but the protocol, so any other gateway is measured by the same code.
"""
