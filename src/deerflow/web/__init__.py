"""Searching the web and reading its pages: providers, safe fetching, extraction, and one cache per run."""
