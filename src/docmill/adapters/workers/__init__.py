"""External workers, by the dialect in which they are started."""
