"""PostgreSQL storage: many gateways and workers share one database."""
