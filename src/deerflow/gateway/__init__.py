"""HTTP gateway: REST API, server-sent events and the web page."""
