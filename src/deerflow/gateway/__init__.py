"""The HTTP door: REST, server-sent events and the page."""
