"""Where the roles live: simulator, local processes, containers, several hosts."""
