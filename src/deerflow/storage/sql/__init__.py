"""The stores, in SQL that every database understands."""
