"""docling-serve: documents over the network.

engine    DoclingEngine: what it reads, and what is made of its result
serve     its asynchronous contract
document  a DoclingDocument, as blocks of pages
"""
