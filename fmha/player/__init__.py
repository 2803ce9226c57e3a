"""The player: a canvas animation of an event table. `payload` packs, `frontend/` draws, `component` mounts."""
