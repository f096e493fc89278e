"""One file of routes per subject."""
