"""Programs as users write them: a demonstration, and the models that tests and benchmarks run."""
