"""The stores, in SQL that runs on every supported database."""
