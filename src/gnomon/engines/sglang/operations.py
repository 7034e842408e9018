"""SGLang's operations: launch commands."""
