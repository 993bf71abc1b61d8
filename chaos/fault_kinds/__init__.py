"""One file per family of faults: what each is, as data, and which engines can do it."""
