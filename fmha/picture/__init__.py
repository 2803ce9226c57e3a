"""The pictures of a lecture as parts: words, formulas, charts, the player. Drawn by the app and by the static site."""
