"""LangGraph's thread protocol: commands in, one numbered stream of events out, over HTTP and WebSocket."""
