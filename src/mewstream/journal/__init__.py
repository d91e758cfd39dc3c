"""The log under the gateway. Nothing outside this package knows how records are kept."""
