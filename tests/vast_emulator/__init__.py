"""A small vast.ai of one's own: a real HTTP server with a market, instances, rate limits, faults and a ledger."""
