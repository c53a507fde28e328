"""pp-smoke-run: cut a GGUF model into N stages, serve a prompt through them, leave nothing behind."""

__version__ = "0.1.0"
