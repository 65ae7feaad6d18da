"""Long documents for providers that take short ones, and the choice among engines.

cutting  a child process that counts the pages of a PDF and cuts it
child    the other side: confined, no network
sliced   SlicedEngine: an engine over the network that takes documents of any length
auto     AutoEngine: the best engine for each document
"""
