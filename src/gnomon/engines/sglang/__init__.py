"""SGLang, as of 0.5.23."""
