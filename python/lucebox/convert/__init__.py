"""Files made from files: drafters from safetensors to GGUF, and models to other tensor types."""
