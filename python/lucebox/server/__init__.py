"""The OpenAI-compatible server: `lucebox serve`, `lucebox.serve`."""
