"""Float64 references. They share nothing with the steps that they judge."""
