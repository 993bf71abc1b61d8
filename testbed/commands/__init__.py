"""One module per command (or family of commands); each has `add_to(app)`."""
