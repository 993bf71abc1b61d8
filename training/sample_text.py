"""A short text of our own to train on where the user brings none. It is part of the committed baseline: leave it."""

SAMPLE_TEXT = """\
The harbour keeps a ledger of the rain:
each drop is signed for, numbered, put away.
When thunder cuts the line we start again
from where the last good page was closed today.

One lamp goes out; the others hold their light,
and pass the sum along from hand to hand.
No sleeper counts a wave it missed at night,
no late return can rearrange the sand.

So let it blow. A rope may fray and part,
a boat come home that none had thought to see;
the keeper reads the ledger from the start
and finds it true, line after line, by three.

What storms undo, the patient hand restores:
the same small numbers, on the same dark shores.
"""
