"""What several layers ask of the operating system and the event loop, and what ``protocol`` must not do itself."""
