"""Scripts for another Python, one that has torch; nothing in Gradstorm imports them."""
