"""PostgreSQL: many gateways and workers on one database."""
