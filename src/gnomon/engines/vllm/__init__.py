"""vLLM: what it fuses, reserves, allows and costs beside the model's own operators."""
