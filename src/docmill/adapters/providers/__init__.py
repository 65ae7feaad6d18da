"""How providers (MinerU, docling-serve, models) are called: one client for all of them."""
