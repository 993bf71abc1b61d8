"""The committed experiments of layer-sharded training: baseline, matrix of rows, diagnostic."""
