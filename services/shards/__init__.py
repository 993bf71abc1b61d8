"""How a layer-sharded run is judged; imports nothing of `training`."""
