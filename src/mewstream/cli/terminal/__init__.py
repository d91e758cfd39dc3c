"""A person's seat in a space: what ``mewstream join`` shows and understands."""
