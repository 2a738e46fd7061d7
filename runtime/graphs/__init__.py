"""CUDA graphs of a start: one base runner, and a small runner for each forward that SGLang captures."""
