"""FMHA Lab as a folder of pages that need no server, no network and no Python: `python -m fmha site`, `make site`.

What can be worked out before is in it: players of prepared runs, the lecture with its questions answered, figures, the
glossary, recorded measurements. What answers to a slider needs Python, and the first page says so.
"""
