"""Keep planned starts, plan new ones, and backfill around them."""
