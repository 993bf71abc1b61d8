"""A decoder-only transformer that can be cut between any two layers, in float64, forward and backward by hand.

Read in this order: `config` (sizes), `layout` (the flat parameter vector), `sharding` (cuts and shards), `shard`
(forward and backward of one shard, calling `embedding`, `block` and `head`), `step` (micro-batches and the central
step). A central model is the uncut one: one shard that runs the same functions layer by layer, in the same order, on
arrays of the same shapes. Therefore any cut computes the same bits.

Sizes in docstrings: b contexts in a micro-batch, t tokens in a context, N = b*t, d width, h heads, e = d/h, m width of
the MLP, v vocabulary.
"""
