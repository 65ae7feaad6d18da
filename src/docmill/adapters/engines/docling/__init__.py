"""docling-serve: documents over the network, by its asynchronous contract."""
