"""The presenter: keys, pointer, speaker notes and the bar below a lecture, in the browser."""
