"""docmill's documents for frameworks: `loaders.langchain`, `loaders.llamaindex`, `loaders.haystack`, each an extra."""
