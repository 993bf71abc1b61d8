"""Pure mathematics: models, data, sharding of samples, reduction, optimizers, checkpoint format."""
