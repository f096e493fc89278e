"""The routers, one module per subject."""
