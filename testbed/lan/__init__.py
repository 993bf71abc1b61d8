"""Several hosts: listening ones that wait to be attached, and the plan that says what to start where."""
